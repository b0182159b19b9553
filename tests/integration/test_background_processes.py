"""Background absorbing when processes exit, are killed, or fork."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from agent_memory import AgentMemory, VectorMemory
from agent_memory.testing import FakeLLM
from tests.kit import SECONDS, until

BEGIN = """
import os, sys, threading, time
from agent_memory import AgentMemory, Block, ExtractiveMemory, FlushToLTM, VectorMemory
from agent_memory.engine import leases
from agent_memory.engine.processing import worker
from agent_memory.ltm_blocks.base import record_id
from agent_memory.core.records import Record

leases.LEASE_SECONDS, worker.POLL_SECONDS = 1.0, 0.05


class Notes(Block):
    kind: str = "notes"

    def get(self, scope, message, limit):
        return []

    def update(self, scope, entries):
        self.resources.store.put_records(self.name, lease=scope.lease, records=[
            Record(record_id(scope.owner, e.session_id, e.seq), scope.owner, e.session_id, e.seq,
                   e.seq, e.message.text(), (e.seq,), e.created_at)
            for e in entries
        ])

    def delete(self, scope):
        self.resources.store.delete_records(self.name, session_id=scope.session_id)


blocks = [Notes()]
options = {"max_tokens": 4000, "quiet_seconds": 0, "overflow_mode": "background"}


def opened(store):
    return AgentMemory(store=store, overflow=FlushToLTM(blocks=blocks, absorb="every_update"),
                       **options)


def user(text):
    return {"role": "user", "content": text}
"""

LEFT = (
    BEGIN
    + """
from agent_memory.stores.sql.store import SQLStore
from agent_memory.testing.watching import watched

stuck = threading.Event()


def hang(step):
    if step == "before put_records" and threading.current_thread().name == "block-notes":
        stuck.set()
        time.sleep(300)


memory = opened(watched(SQLStore(sys.argv[1]), hang))
for n in range(8):
    memory.update(f"s{n % 4}", user(f"message {n}"), user_id="u")
assert stuck.wait(60)
print("stuck", flush=True)
sys.stdin.readline()
"""
)

ENDS = {
    "the last line": "", "os._exit": "os._exit(0)",
    "SIGTERM": "sys.stdin.read()", "SIGKILL": "sys.stdin.read()",
}  # fmt: skip
needs_forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts scripts, and ends them and their forks with the test."""
    started: list[subprocess.Popen[str]] = []

    def begin(script: str, *args: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", script, *args],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def line(process: subprocess.Popen[str]) -> str:
    said = process.stdout.readline().strip()
    if not said:
        pytest.fail(process.communicate(timeout=SECONDS)[1])
    return said


def ended(process: subprocess.Popen[str], say: str = "") -> tuple[int, str, str]:
    out, errors = process.communicate(say, timeout=SECONDS)
    return process.returncode, out, errors


def absorbed(memory: AgentMemory) -> list[tuple[str, int]]:
    """Return the session and seq of each absorbed entry."""
    found = memory._store.records("notes", "user:u")
    return sorted((record.session_id, record.last) for record in found)


def test_a_process_exits_promptly_and_the_next_one_absorbs_the_rest(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wrong: an exit waits for a call that hangs, or prints errors. Or the next process does not
    absorb the rest by itself."""
    names: dict[str, Any] = {}
    monkeypatch.setattr("agent_memory.engine.processing.worker.POLL_SECONDS", 0.05)
    monkeypatch.setattr("agent_memory.engine.leases.LEASE_SECONDS", 1.0)
    exec(BEGIN, names)
    url = {end: f"sqlite:///{tmp_path}/{n}.db" for n, end in enumerate(ENDS)}
    processes = {end: start(f"{LEFT}\n{last}\n", url[end]) for end, last in ENDS.items()}
    for end, process in processes.items():
        assert line(process) == "stuck"
        by_signal = end.startswith("SIG")
        process.stdin.write("\n")
        process.stdin.flush()
        begun = time.monotonic()
        if by_signal:
            time.sleep(0.2)
            process.send_signal(signal.Signals[end])
        code, _, errors = ended(process)
        assert time.monotonic() - begun < 40, end  # 2 s on an idle machine
        assert (code, errors) == (-signal.Signals[end] if by_signal else 0, ""), end
    for end in ENDS:
        with names["opened"](url[end]) as memory:
            until(lambda memory=memory: not memory.stats().blocks["notes"].lag)
            assert absorbed(memory) == [(f"s{n}", seq) for n in range(4) for seq in (1, 2)], end


MODEL = (
    BEGIN
    + """
import warnings

warnings.simplefilter("ignore")  # litellm leaves an event loop open
blocks = [ExtractiveMemory()]
options |= {"model": "openai/any", "api_base": sys.argv[2], "api_key": "k"}
memory = opened(sys.argv[1])
for n in range(4):
    memory.update(f"s{n}", user(f"message {n}"), user_id="u")
print("updated", flush=True)
sys.stdin.readline()
"""
)


IMPORT = (
    BEGIN
    + """
class Slow(Notes):
    def update(self, scope, entries):
        print("importing", flush=True)
        import many


sys.path.insert(0, sys.argv[2])
import last

sys.setswitchinterval(1e-6)
blocks[0] = Slow()
memory = opened(sys.argv[1])
memory.update("s", user("hello"))
sys.stdin.readline()
"""
)

MANY = """
import last, time

last.__spec__._initializing = True  # so that each import takes the lock
end = time.monotonic() + 3
while time.monotonic() < end:
    import last
"""

LAST = """
class Last:
    def __del__(self):  # as litellm does; no thread runs any more
        try:
            import another
        except ImportError:
            pass


it = Last()
"""


def test_a_process_exits_while_a_thread_imports_a_module(start: Start, tmp_path: Path) -> None:
    """Wrong: a process that exits while a thread imports a module hangs."""
    (tmp_path / "many.py").write_text(MANY)
    (tmp_path / "last.py").write_text(LAST)
    processes = [start(IMPORT, f"sqlite:///{tmp_path}/{n}.db", str(tmp_path)) for n in range(3)]
    for process in processes:
        assert line(process) == "importing"
    for process in processes:
        assert ended(process, "\n") == (0, "", "")


def test_a_process_exits_while_a_call_to_the_model_hangs(start: Start, tmp_path: Path) -> None:
    """Wrong: a process that exits during a call to the model hangs."""
    gate = threading.Event()

    def answer(body: dict[str, Any]) -> str:
        gate.wait(3 * SECONDS)
        return json.dumps({"facts": []})

    with FakeLLM(answer) as fake:
        process = start(MODEL, f"sqlite:///{tmp_path}/m.db", fake.api_base)
        assert line(process) == "updated"
        until(lambda: fake.requests)
        begun = time.monotonic()
        assert ended(process, "\n") == (0, "", "")
        assert time.monotonic() - begun < 40
        gate.set()


ENCODING = (
    BEGIN
    + """
from agent_memory.models.embedders import local

read = local._Model.read
local._Model.read = lambda self, texts: (os.write(1, b"encoding\\n"), read(self, texts))[1]
blocks[0] = VectorMemory()
memory = opened(sys.argv[1])
for n in range(4):
    memory.update(f"s{n}", [user(f"message {n}, {m}: " + 200 * "word ") for m in range(40)])
sys.stdin.readline()
"""
)


def test_a_process_that_exits_while_it_encodes_reports_no_failure(
    start: Start, tmp_path: Path
) -> None:
    """Wrong: a script without `close` ends with a warning, and a failed batch is stored."""
    url = f"sqlite:///{tmp_path}/m.db"
    process = start(ENCODING, url)
    assert line(process) == "encoding"
    code, _, errors = ended(process, "\n")
    assert (code, errors) == (0, "")
    with AgentMemory(store=url, blocks=[VectorMemory()]) as memory:
        assert memory.stats().blocks["vector"].error is None


FORKS = (
    BEGIN
    + """
from agent_memory.models.embedders import open_embedder
from agent_memory.models.usage import Ledger, Usage

os.environ["TOKENIZERS_PARALLELISM"] = "false"  # tokenizers would tell of each fork
if in_memory := sys.argv[1] == "memory://":
    blocks[0] = VectorMemory()
going, embedder, ledger = threading.Event(), open_embedder("local"), Ledger()
embedder.embed(["load the model"])
memory = opened(sys.argv[1])


def say(name, text):
    memory.update(name, user(text), user_id="u")
    memory.get(name, "what was said?")
    embedder.embed([text])
    ledger.add(Usage(calls=1))


def talk(name):
    n = 0
    while not going.is_set():
        say(f"{name} {n % 7}", f"{name} says {n % 50}")
        n += 1


talkers = [threading.Thread(target=talk, args=(f"t{n}",)) for n in range(3)]
for talker in talkers:
    talker.start()
children = []
for n in range(30):
    time.sleep(0.02)
    if not (child := os.fork()):
        say(f"child {n}", f"child {n} says this")
        memory.close()
        os._exit(in_memory and memory._store.head(f"child {n}").lag("vector"))
    children.append(child)
going.set()
for talker in talkers:
    talker.join()
for child in children:
    assert os.waitpid(child, 0)[1] == 0
while memory._store.due(1):  # a session that a child held at its last update
    time.sleep(0.02)
memory.close()
"""
)


@needs_forks
@pytest.mark.parametrize("store", ["sqlite", "memory"])
def test_a_fork_does_not_hang(start: Start, tmp_path: Path, store: str) -> None:
    """Wrong: parent or child waits for ever for a lock that another thread held at the fork."""
    url = "memory://" if store == "memory" else f"sqlite:///{tmp_path}/m.db"
    assert ended(start(FORKS, url)) == (0, "", "")
    if store == "memory":
        return
    with AgentMemory(store=url) as memory:
        said = [(h.session_id, n + 1) for h in memory.sessions(limit=1000) for n in range(h.end)]
        assert {name for name, _ in said} >= {f"child {n}" for n in range(30)}
        assert absorbed(memory) == sorted(said)


FORK_IN_IMPORT = """
import os, sys, threading, time

import agent_memory.core.processes

sys.path.insert(0, sys.argv[1])
thread = threading.Thread(target=lambda: __import__("slow"))
thread.start()
while "slow" not in sys.modules:
    time.sleep(0.001)
if not (child := os.fork()):
    import slow

    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
thread.join()
"""


@needs_forks
def test_a_child_forked_during_an_import_does_not_hang(start: Start, tmp_path: Path) -> None:
    """Wrong: a child hangs when it imports a module that its parent was importing."""
    (tmp_path / "slow.py").write_text("import time\ntime.sleep(1)\n")
    assert ended(start(FORK_IN_IMPORT, str(tmp_path))) == (0, "", "")


CLIENTS = (
    BEGIN
    + """
import warnings
from pydantic import SecretStr
from agent_memory.models.llm import LLM

warnings.simplefilter("ignore")  # litellm leaves an event loop open
model = LLM("openai/any", api_base=sys.argv[1], api_key=SecretStr("k"))


def ask(who):
    for n in range(10):
        assert model.complete([{"role": "user", "content": f"{who} {n}"}]) == f"{who} {n}"


ask("parent")
child = os.fork()
ask("parent" if child else "child")
if not child:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""
)


@needs_forks
def test_forks_share_no_connection(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: parent and child share a connection to the model, and read each other's answers."""
    monkeypatch.setattr("agent_memory.testing.fake_llm._Handler.protocol_version", "HTTP/1.1")
    asked: dict[threading.Thread, set[str]] = {}

    def answer(body: dict[str, Any]) -> str:
        said: str = body["messages"][-1]["content"]
        asked.setdefault(threading.current_thread(), set()).add(said.split()[0])  # by connection
        return said

    with FakeLLM(answer) as fake:
        assert ended(start(CLIENTS, fake.api_base)) == (0, "", "")
    assert sorted(asked.values(), key=min) == [{"child"}, {"parent"}]
