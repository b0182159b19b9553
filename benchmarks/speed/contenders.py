"""The contenders, and the process that each of them runs in."""

import json
import os
import subprocess
import sys
import threading
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any, Literal

ROOT = Path(__file__).parents[2]
PEERS_DIR = Path.home() / ".cache" / "agent-memory-bench"
_ANSWER_SECONDS = 300.0


@dataclass(frozen=True)
class Contender:
    """A contender: ours, a floor, or a peer in a virtualenv of its own."""

    key: str
    name: str
    kind: Literal["ours", "floor", "peer"]
    module: tuple[str, ...]
    venv: str = ""
    needs: tuple[str, ...] = ()

    def python(self, peers_dir: Path) -> Path:
        """The Python that runs it."""
        if self.kind != "peer":
            return Path(sys.executable)
        return venv_python(peers_dir / self.venv)


_LLAMAINDEX = ("llama-index-core", "aiosqlite", "tiktoken")
_LANGCHAIN = ("langchain-core", "langchain-community", "sqlalchemy[asyncio]", "tiktoken")

OURS, IN_MEMORY = "ours-sqlite", "ours-memory"
FLOOR = "sqlite"
CONTENDERS = (
    Contender(OURS, "agent-memory, SQLite", "ours", ("benchmarks.speed.ours", "sqlite")),
    Contender(IN_MEMORY, "agent-memory, memory", "ours", ("benchmarks.speed.ours", "memory")),
    Contender("list", "list append", "floor", ("benchmarks.speed.floors", "list")),
    Contender(FLOOR, "raw sqlite3", "floor", ("benchmarks.speed.floors", "sqlite")),
    Contender("redis", "raw Redis", "floor", ("benchmarks.speed.floors", "redis")),
    Contender("openai-agents", "OpenAI Agents SQLiteSession, file", "peer",
              ("benchmarks.peers.openai_agents",), "openai_agents", ("openai-agents",)),
    Contender("langchain", "LangChain SQL history + trim, file", "peer",
              ("benchmarks.peers.langchain",), "langchain", _LANGCHAIN),
    Contender("llamaindex-file", "LlamaIndex Memory, file", "peer",
              ("benchmarks.peers.llamaindex", "file"), "llamaindex", _LLAMAINDEX),
    Contender("llamaindex-memory", "LlamaIndex Memory, in memory", "peer",
              ("benchmarks.peers.llamaindex", "memory"), "llamaindex", _LLAMAINDEX),
    Contender("mem0", "mem0 without a model, local Qdrant", "peer",
              ("benchmarks.peers.mem0_qdrant",), "mem0", ("mem0ai", "qdrant-client")),
)  # fmt: skip


class Gone(Exception):  # the table shows the reason
    """A contender's process ended, or did not answer in time."""


class Process:
    """A running contender. `about`, its description, is empty until `meet`."""

    def __init__(self, contender: Contender, peers_dir: Path, folder: Path) -> None:
        self.contender = contender
        self.about: dict[str, Any] = {}
        self._log = folder / f"{contender.key}.log"
        module, *arguments = contender.module
        with self._log.open("a") as log:
            self._process = subprocess.Popen(
                [contender.python(peers_dir), "-m", module, *arguments, str(folder)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=clean_environment(),
                text=True,
            )

    def meet(self) -> None:
        """Wait until the process is ready. Raise `Gone` if it cannot start."""
        self.about = self._read()

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to a request. Raise `Gone` if the process ended or is too slow."""
        asked = _pipe(self._process.stdin)
        try:
            asked.write(json.dumps(request) + "\n")
            asked.flush()
        except BrokenPipeError:
            raise Gone(self._reason()) from None
        return self._read()

    def close(self) -> None:
        """End the process. Idempotent."""
        try:
            _pipe(self._process.stdin).close()
            self._process.wait(30)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        _pipe(self._process.stdout).close()

    def _read(self) -> dict[str, Any]:
        timer = threading.Timer(_ANSWER_SECONDS, self._process.kill)
        timer.start()
        try:
            line = _pipe(self._process.stdout).readline()
        finally:
            timer.cancel()
        if not line:
            raise Gone(self._reason())
        found: dict[str, Any] = json.loads(line)
        return found

    def _reason(self) -> str:
        self._process.wait()
        if self._process.returncode < 0:
            return f"ended by signal {-self._process.returncode}, or no answer in time"
        said = self._log.read_text(errors="replace").strip().splitlines()
        return said[-1][:200] if said else f"ended with code {self._process.returncode}"


def venv_python(venv: Path) -> Path:
    """The Python of a virtualenv."""
    return venv / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def clean_environment() -> dict[str, str]:
    """Return this process's environment without agent-memory's settings, for offline use."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("AGENT_MEMORY_")}
    env.pop("PYTHONDONTWRITEBYTECODE", None)  # so that installed packages cache their bytecode
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), env.get("PYTHONPATH")]))
    found = find_spec("litellm")
    if found is not None and found.submodule_search_locations:
        files = Path(found.submodule_search_locations[0], "litellm_core_utils", "tokenizers")
        env.setdefault("TIKTOKEN_CACHE_DIR", str(files))
    return env


def _pipe(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe
