"""Helpers that tests of several folders share: messages, logs, waiting, the command line."""

import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import cache
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import click
import pytest
import typer.main
from click.testing import CliRunner, Result
from hypothesis import settings

from agent_memory import AgentMemory, Block, Entry, Message, NoteMemory, Recall
from agent_memory.cli.entry import app
from agent_memory.core import threads
from agent_memory.core.records import Record, Scope
from agent_memory.engine.processing.worker import Worker
from agent_memory.ltm_blocks import record_id
from agent_memory.stores.base import Store
from agent_memory.testing import FakeLLM
from agent_memory.testing.contract import stored
from tests.layers import EXAMPLES

T = TypeVar("T")

SECONDS = 60.0
"""The longest wait for a condition that holds within moments on an idle machine."""


def at_length(count: int) -> int:
    """Return `count`, or the share of it that `--layer core` runs. See `tests.layers`."""
    return -(-count * settings().max_examples // EXAMPLES["all"])


def every_nth(cases: Iterable[T], step: int) -> Iterable[T]:
    """Return every `step`-th case, or three times as many when more than the core runs."""
    return islice(
        cases, 0, None, step if settings().max_examples < EXAMPLES["all"] else -(-step // 3)
    )


def spread(cases: Iterable[T], most: int) -> list[T]:
    """Return at most so many evenly spaced cases, the first and the last among them."""
    every = list(cases)
    last, count = len(every) - 1, min(most, len(every))
    return [every[last * n // max(1, count - 1)] for n in range(count)]


def steps_of(way: T, ways: Sequence[T]) -> range:
    """Return the steps at which a test interrupts a call that `way` then completes.

    The ways take turns: each step is tried with one of them.
    """
    return range(1 + ways.index(way), 400, len(ways))


def user(text: Any, **fields: Any) -> dict[str, Any]:
    return {"role": "user", "content": text, **fields}


def assistant(text: Any, **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **fields}


def texts(memory: AgentMemory, session: str = "s") -> list[str]:
    return [entry.message.text() for entry in memory.history(session)]


def until(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + SECONDS
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def running(name: str) -> int:
    """Return how many threads run calls to a block: each is named after it until its call ends."""
    return sum(thread.name == f"block-{name}" for thread in threading.enumerate())


def wait_for_calls(name: str) -> None:
    """Wait until no call to a block runs, abandoned ones included."""
    until(lambda: not running(name))


def opened(store: Any, *blocks: Block, **fields: Any) -> AgentMemory:
    """Open a memory with a long recall timeout: on a busy machine the first recall is slow."""
    return AgentMemory(store=store, blocks=blocks, recall_timeout=SECONDS, **fields)


def model_at(fake: FakeLLM) -> dict[str, Any]:
    """Return the settings of a memory whose model this server is."""
    return {"model": "openai/any", "api_base": fake.api_base, "api_key": "k"}


def run_worker(worker: Worker) -> None:
    """Have a worker do what is due, and stop it."""
    worker.run_once()
    worker.stop()


def note_waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Have tenacity record its waits instead of sleeping."""
    waits: list[float] = []
    monkeypatch.setattr("tenacity.nap.time", SimpleNamespace(sleep=waits.append))
    return waits


def started_threads(patch: pytest.MonkeyPatch) -> list[threading.Thread]:
    """Return a list to which each thread is added that starts, from now on without idle threads."""
    found: list[threading.Thread] = []
    real = threading.Thread.start

    def noted(thread: threading.Thread) -> None:
        found.append(thread)
        real(thread)

    patch.setattr(threading.Thread, "start", noted)
    patch.setattr(threads, "IDLE_SECONDS", SECONDS)
    patch.setattr(threads, "_threads", threads._Threads())
    return found


@cache
def command_line() -> click.Command:
    """Build the command line once: Typer would build it for each call, which is slow."""
    return typer.main.get_command(app)


def invoke(arguments: Sequence[str], input: str | bytes | None = None, **settings: Any) -> Result:
    """Return the result of one of our commands, run in this process."""
    return CliRunner().invoke(command_line(), list(arguments), input, **settings)


def run(*arguments: str, given: str | None = None, code: int = 0) -> str:
    """Return the output of one of our commands, which must end with this code."""
    result = invoke(arguments, given)
    assert result.exit_code == code, result.output
    return result.output


def clean_environment(monkeypatch: pytest.MonkeyPatch, folder: Path, *more: str) -> None:
    """Work in a folder, on a wide terminal, without our settings or these variables."""
    for name in list(os.environ):
        if name.startswith("AGENT_MEMORY_") or name in more:
            monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.chdir(folder)


def piped(*command: str, **more: Any) -> subprocess.Popen[str]:
    """Start a process whose input, output and errors are pipes of text, unless given."""
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen(command, text=True, **{**pipes, **more})


def mark_deleting(store: Store, session_id: str = "s") -> None:
    """Begin a session's deletion, like a process that is then killed."""
    assert store.move(replace(stored(store, session_id), deleting=True))


def with_model(fake: FakeLLM, **fields: Any) -> AgentMemory:
    """Open a memory without blocks whose model is a fake one."""
    return AgentMemory(**{"store": "memory://", "blocks": [], **model_at(fake), **fields})


class Handles:
    """Fixtures of a store's contract: two handles on one namespace, and one on another."""

    @pytest.fixture
    def opens(self) -> Callable[[str], Store]:
        """Open a store in the test's namespace, with this text behind its name."""
        pytest.fail("Define an `opens` fixture in the subclass.")

    @pytest.fixture
    def store(self, opens: Callable[[str], Store]) -> Iterator[Store]:
        with closing(opens("")) as store:
            yield store

    @pytest.fixture
    def other(self, store: Store, opens: Callable[[str], Store]) -> Iterator[Store]:
        with closing(opens("")) as other:
            yield other

    @pytest.fixture
    def elsewhere(self, store: Store, opens: Callable[[str], Store]) -> Iterator[Store]:
        with closing(opens("-elsewhere")) as elsewhere:
            yield elsewhere


class Silent(Block):
    """Takes everything and recalls nothing. Subclasses override what a test is about."""

    kind: str = "silent"

    def get(self, scope: Scope, message: Message | None, limit: int) -> list[Recall]:
        return []

    def update(self, scope: Scope, entries: Sequence[Entry]) -> None:
        """Do nothing."""

    def delete(self, scope: Scope) -> None:
        """Do nothing."""


class Echo(Silent):
    """Recalls all messages. It keeps a record of each in the engine's store, under the lease."""

    kind: str = "echo"

    def get(self, scope: Scope, message: Message | None, limit: int) -> list[Recall]:
        return [
            Recall(self.name, one.id, one.text, 1.0, sources=((one.session_id, one.last),))
            for one in self.resources.store.records(self.name, scope.owner)
        ]

    def text_of(self, entry: Entry) -> str:
        return entry.message.text()

    def update(self, scope: Scope, entries: Sequence[Entry]) -> None:
        records = [
            Record(
                record_id(scope.owner, one.session_id, one.seq), scope.owner, one.session_id,
                one.seq, one.seq, self.text_of(one), (one.seq,), one.created_at,
            )
            for one in entries
        ]  # fmt: skip
        self.resources.store.put_records(self.name, records, lease=scope.lease)

    def delete(self, scope: Scope) -> None:
        where = {"session_id": scope.session_id} if scope.session_id else {"owner": scope.owner}
        self.resources.store.delete_records(
            self.name, **where, after=scope.after, lease=scope.lease
        )


class StepwiseNotes(NoteMemory):
    """Notes with a `delete` of their own, so that sessions and users are deleted in steps."""

    def delete(self, scope: Scope) -> None:
        super().delete(scope)


class Cut(Exception):
    """Stands for the end of the process."""


def cut_at(step: int) -> tuple[Callable[[str], None], list[str]]:
    """Return a watch for `watched` that raises `Cut` from a step on, and the steps so far."""
    steps: list[str] = []

    def watch(name: str) -> None:
        steps.append(name)
        if len(steps) >= step:
            raise Cut(name)

    return watch, steps


def home_of_its_own(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Work in a folder with a home for agents' settings, without our settings."""
    clean_environment(monkeypatch, folder, "CLAUDE_CONFIG_DIR", "CODEX_HOME")
    (folder / "home").mkdir()
    monkeypatch.setenv("HOME", str(folder / "home"))
    monkeypatch.setenv("LOGNAME", "ana")
