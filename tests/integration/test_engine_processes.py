"""The whole engine in several processes at once, and killed in the middle of its work."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np

from agent_memory import AgentMemory, FlushToLTM, VectorMemory

WRITER = """
import sys
from agent_memory import AgentMemory, FlushToLTM, VectorMemory

url, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
overflow = FlushToLTM(blocks=[VectorMemory()], max_stm_ratio=0.5)
with AgentMemory(store=url, max_tokens=400, overflow=overflow) as memory:
    for i in range(count):
        head = memory.update("s", {"role": "user", "content": f"{name} says {i}"}, user_id="u")
        assert memory.get("s").tokens <= 400
        print(i, flush=True)
"""


def opened(url: str) -> AgentMemory:
    overflow = FlushToLTM(blocks=[VectorMemory()], max_stm_ratio=0.5)
    return AgentMemory(store=url, max_tokens=400, overflow=overflow)


def writer(url: str, name: str, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, url, name, str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def absorbed_seqs(memory: AgentMemory) -> list[int]:
    """The seqs that have a vector, one for each record."""
    anywhere = np.eye(256, dtype=np.float32)[0]
    found = memory._store.search_vectors("vector", "user:u", anywhere, 100_000)
    return sorted(record.sources[0] for record, _ in found)


def test_processes_share_one_session(tmp_path: Path) -> None:
    """Wrong: a gap, a double, a writer's order lost, or an entry absorbed twice or never."""
    url = f"sqlite:///{tmp_path}/m.db"
    writers = [writer(url, f"w{n}", 40) for n in range(3)]
    for process in writers:
        _, errors = process.communicate(timeout=100)
        assert (process.returncode, errors) == (0, "")
    with opened(url) as memory:
        log = memory.history("s")
        assert [entry.seq for entry in log] == list(range(1, 121))
        for n in range(3):
            said = [entry.message.text() for entry in log]
            assert [text for text in said if text.startswith(f"w{n} ")] == [
                f"w{n} says {i}" for i in range(40)
            ]
        memory.flush("s")
        assert absorbed_seqs(memory) == list(range(1, 121))


def test_killed_in_the_middle(tmp_path: Path) -> None:
    """Wrong: an acknowledged message is gone, or what it owes a block is lost or done twice."""
    url = f"sqlite:///{tmp_path}/m.db"
    acknowledged = 0
    for round_ in range(4):
        process = writer(url, f"r{round_}", 10_000)
        assert process.stdout is not None
        for _ in range(30 + 7 * round_):
            process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        rest, _ = process.communicate(timeout=60)
        acknowledged += 30 + 7 * round_ + len(rest.split())
    with opened(url) as memory:
        seqs = [entry.seq for entry in memory.history("s")]
        assert len(seqs) >= acknowledged
        assert seqs == list(range(1, len(seqs) + 1))
        # a killed process cannot give its lease back: this waits until it has run out
        memory.flush("s")
        assert absorbed_seqs(memory) == seqs
