"""An import stores a whole session or nothing."""

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from agent_memory import AgentMemory, WorkingMemory, operations
from agent_memory.errors import InvalidSnapshot
from agent_memory.stores import open_store
from agent_memory.stores.base import Store
from tests.integration.snapshot_world import CANARY, Opener, left_in, lines, opener, remembering

__all__ = ["lines", "opener"]


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_a_damaged_file_leaves_nothing(kind: str, lines: list[str], opener: Opener) -> None:
    """Wrong: a damaged file leaves data, blocks its id, or the error does not name the line."""
    store = opener(kind)
    with remembering(store) as memory:
        before = len(list(store.all_records()))
        for at in range(0, len(lines), 8 if kind == "memory" else 16):
            damaged = [*lines[:at], lines[at].replace('"sum":"', '"sum":"x'), *lines[at + 1 :]]
            for bad in (damaged, lines[:at]):
                with pytest.raises(InvalidSnapshot, match=f"line {at + 1}: "):
                    operations.import_session(memory, bad)
                assert memory.history("s") == memory.sessions() == []
        assert not left_in(store)
        named = {one.text for block, one in store.all_records() if block == "_registry"}
        assert len(list(store.all_records())) == before + len(named)
        assert memory.search(CANARY, user_id="ada") == memory.user("ada").facts() == []
        operations.import_session(memory, lines)
        assert len(memory.history("s")) == 57


DYING = """
import os, signal, sys
from agent_memory import AgentMemory, FlushToLTM, NoteMemory, VectorMemory, WorkingMemory
from agent_memory import operations
from agent_memory.engine import leases
from agent_memory.stores.sql.store import SQLStore

leases.LEASE_SECONDS = 1.0
url, file, when = sys.argv[1], sys.argv[2], sys.argv[3]

def die():
    os.kill(os.getpid(), signal.SIGKILL)

class Dying(SQLStore):
    def move(self, head, *, lease=None):
        if when == "shown" and not head.deleting:
            die()
        return super().move(head, lease=lease)

def lines():
    with open(file, encoding="utf-8", newline="\\n") as opened:
        for at, line in enumerate(opened):
            if str(at) == when:
                die()
            yield line

blocks = [VectorMemory(), WorkingMemory(), NoteMemory()]
with AgentMemory(store=Dying(url), overflow=FlushToLTM(blocks=blocks)) as memory:
    operations.import_session(memory, lines())
print("not killed")
"""


@pytest.mark.parametrize("when", ["shown", "at its last line"])
def test_killed_while_it_imports(when: str, lines: list[str], tmp_path: Path) -> None:
    """Wrong: a killed import shows part of a session, or leaves it in the files."""
    file = tmp_path / "s.jsonl"
    file.write_bytes("".join(lines).encode())
    killed = tmp_path / "killed"
    killed.mkdir()
    at = when if when == "shown" else str(len(lines) - 1)
    done = subprocess.run(
        [sys.executable, "-c", DYING, f"sqlite:///{killed}/m.db", str(file), at],
        capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": "."},
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (-9, ""), done.stderr
    for by in ("delete", "worker", "another import", "delete_user"):
        folder = shutil.copytree(killed, tmp_path / by)
        store = open_store(f"sqlite:///{folder}/m.db")
        with AgentMemory(store=store, blocks=[WorkingMemory()]) as memory:
            assert left_in(store)
            assert memory.sessions() == memory.history("s") == []
            assert memory.session("s").working().all() == {}
            assert not memory.user("ada").notes().all()
            _wait_for_lease(store)
            if by == "delete":
                memory.delete("s")
            elif by == "worker":
                memory.components.worker(1).run_once()
            elif by == "delete_user":
                memory.delete_user("ada")
            else:
                operations.import_session(memory, lines)
                assert len(memory.history("s")) == 57
                memory.delete("s")
            assert not left_in(store)
        store.close()
        for one in folder.iterdir():
            assert CANARY.encode() not in one.read_bytes(), (by, one.name)


def _wait_for_lease(store: Store) -> None:
    """Wait until the killed process's lease has expired."""
    while not store.lease("s", "nobody", 1):
        threading.Event().wait(0.1)
    store.release("s", "nobody")
