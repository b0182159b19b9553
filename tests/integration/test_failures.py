"""Failures of strategies and slow blocks: no message is lost."""

import logging
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from agent_memory import AgentMemory, Strategy
from agent_memory.core.records import Entry, Scope
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


def test_whole_turns_whatever_a_strategy_answers() -> None:
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
