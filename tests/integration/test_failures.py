"""Strategies and blocks that fail: updates and contexts go on."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest

from agent_memory import AgentMemory, MemoryContext, Message, Strategy
from agent_memory.core.records import Entry, Recall, Scope
from agent_memory.strategies import Cut, Window
from tests.histories import call, result, unpaired
from tests.kit import Silent, user


def test_a_failing_strategy_never_fails_an_update(caplog: pytest.LogCaptureFixture) -> None:
    """Wrong: an error in a custom strategy loses a message, or `update` raises it."""

    class Buggy(Strategy):
        kind: str = "buggy"

        def cut(self, window: Window) -> Cut | None:
            raise ZeroDivisionError

    with (
        caplog.at_level(logging.ERROR),
        AgentMemory(store="memory://", max_tokens=200, overflow=Buggy()) as memory,
    ):
        for i in range(30):
            memory.update("s", user(f"Message number {i}"))
            assert memory.get("s").tokens <= 200
        assert len(memory.history("s")) == 30
    assert "will be tried again" in caplog.text


class SplitsPairs(Strategy):
    """A strategy that separates calls from their results, and ignores its limit."""

    kind: str = "splits_pairs"

    def cut(self, window: Window) -> Cut | None:
        return Cut(window.entries[-2].seq, (window.entries[0].seq,))


def test_a_strategy_cannot_separate_a_call_from_its_result() -> None:
    """Wrong: a strategy can separate a call from its result."""
    with AgentMemory(store="memory://", max_tokens=300, overflow=SplitsPairs()) as memory:
        for i in range(30):
            for message in (user(f"Question {i}"), call([f"c{i}"]), result(f"c{i}", "42")):
                memory.update("s", message)
            context = memory.get("s")
            assert unpaired(context.to_messages()) == []
            assert context.tokens <= 300


class Slow(Silent):
    """Takes longer for a batch than a lease lasts."""

    kind: str = "slow"
    calls: list[str] = []

    def update(self, scope: Scope, entries: Sequence[Entry]) -> None:
        self.calls.append("begin")
        time.sleep(2.0)
        self.calls.append("end")


def test_long_work_keeps_its_lease(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: a second worker absorbs a batch that the first is still absorbing."""
    monkeypatch.setattr("agent_memory.engine.leases.LEASE_SECONDS", 1.0)
    monkeypatch.setattr("agent_memory.engine.leases._BEAT_SECONDS", 0.1)
    url, calls = f"sqlite:///{tmp_path}/m.db", []
    one, two = (AgentMemory(store=url, blocks=[Slow(calls=calls)]) for _ in range(2))
    for memory in (one, two):
        bound = memory.blocks["slow"]
        assert isinstance(bound, Slow)
        object.__setattr__(bound, "calls", calls)
    with one, two, ThreadPoolExecutor(2) as pool:
        one.update("s", user("hello"))
        done = [pool.submit(memory.flush, "s") for memory in (one, two)]
        absorbed = [result.result(timeout=60) for result in done]
    assert calls == ["begin", "end"]
    assert sorted(len(found) for found in absorbed) == [0, 1]


class Dead(Silent):
    """Can fail or hang on demand, and counts its calls."""

    kind: str = "dead"
    asked: list[str] = []
    broken: list[Exception] = []
    gate: threading.Event = threading.Event()
    within: threading.Semaphore = threading.Semaphore(0)

    def get(self, scope: Scope, message: Message | None, limit: int) -> list[Recall]:
        self.asked.append("asked")
        self.within.release()
        self.gate.wait()
        if self.broken:
            raise self.broken[0]
        return [Recall(block=self.name, id="r", text=f"What {self.name} knows.")]


class CallRecorder:
    """A memory with blocks that can fail, and with its own clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, timeout: float, *names: str) -> None:
        self.clock = [0.0]
        monkeypatch.setattr("agent_memory.engine.recall.runner.monotonic", lambda: self.clock[0])
        blocks = [
            Dead(
                name=name, asked=[], broken=[], gate=threading.Event(),
                within=threading.Semaphore(0),
            )
            for name in names
        ]  # fmt: skip
        self.memory = AgentMemory(store="memory://", blocks=blocks, recall_timeout=timeout)
        self.blocks = {name: cast("Dead", self.memory.blocks[name]) for name in names}
        for block in self.blocks.values():
            block.gate.set()

    def get(self, session_id: str = "s", user_id: str = "ada") -> MemoryContext:
        return self.memory.get(session_id, "hello", user_id=user_id)

    def calls(self, name: str) -> int:
        return len(self.blocks[name].asked)

    def __enter__(self) -> CallRecorder:
        return self

    def __exit__(self, *exc: object) -> None:
        for block in self.blocks.values():
            block.gate.set()
        self.memory.close()


def test_a_hanging_block_is_paused_after_repeated_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: each `get` waits for a block that hangs, or one that recovered is never called."""
    with CallRecorder(monkeypatch, 0.05, "hangs", "works") as asked:
        asked.blocks["hangs"].gate.clear()
        for n in range(20):
            context = asked.get()
            assert [recall.block for recall in context.recalls] == ["works"]
            (warning,) = context.warnings
            assert ("'hangs' did not answer" if n < 2 else "'hangs' failed before") in warning
        assert (asked.calls("hangs"), asked.calls("works")) == (2, 20)
        for rest in (4, 8, 16):
            asked.clock[0] += rest
            before = asked.calls("hangs")
            for _ in range(5):
                assert asked.get().warnings
            assert asked.calls("hangs") == before + 1
        asked.blocks["hangs"].gate.set()
        asked.clock[0] += 32
        for _ in range(3):
            context = asked.get()
            assert {recall.block for recall in context.recalls} == {"hangs", "works"}
            assert context.warnings == []
        assert asked.calls("hangs") == 8


@pytest.mark.parametrize("thread", ["own", "shared"])
def test_slow_queries_pause_one_block(thread: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: after slow queries, other users, or a busy machine's local blocks, recall nothing."""
    monkeypatch.setattr(Dead, "query_thread", thread)
    with CallRecorder(monkeypatch, 0.05, "hangs") as asked:
        asked.blocks["hangs"].gate.clear()
        for _ in range(3):
            assert asked.get().warnings
        asked.blocks["hangs"].gate.set()
        assert ("failed before" in str(asked.get().warnings)) == (thread == "own")
        assert asked.get("t", "ben").warnings == []


def test_a_paused_block_is_tried_by_one_caller_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: when the pause of a failed block ends, all callers wait for it at once."""
    with CallRecorder(monkeypatch, 60.0, "one") as asked:
        block = asked.blocks["one"]
        block.broken.append(ConnectionError("down"))
        asked.get()
        asked.get()
        assert asked.calls("one") == 2
        block.broken.clear()
        block.gate.clear()
        asked.clock[0] += 4
        while block.within.acquire(blocking=False):
            pass
        with ThreadPoolExecutor(1) as pool:
            probe = pool.submit(asked.get)
            block.within.acquire()
            for _ in range(10):
                assert "'one' failed before" in asked.get().warnings[0]
            assert asked.calls("one") == 3
            block.gate.set()
            assert probe.result().warnings == []
        assert asked.get().warnings == []
        assert asked.calls("one") == 4


@pytest.mark.parametrize("text", [None, 7])
def test_an_invalid_recall_causes_a_warning(text: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: a recall whose text is no string makes `get` fail."""
    with CallRecorder(monkeypatch, 5.0, "one", "two") as asked:
        rubbish = [Recall(block="one", id="r", text=text)]
        object.__setattr__(asked.blocks["one"], "get", lambda *args: rubbish)
        context = asked.get()
        assert [recall.block for recall in context.recalls] == ["two"]
        assert "'one' failed: TypeError" in context.warnings[0]
