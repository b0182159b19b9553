"""What breaks, and that nothing is lost by it."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pydantic import PrivateAttr

from agent_memory import AgentMemory, Block, FlushToLTM, Strategy, Trim
from agent_memory.core.messages import Message
from agent_memory.core.records import Entry, Recall, Scope
from agent_memory.strategies import Cut, Window
from tests.kit import user


class Ledger(Block):
    """Notes what it was given; fails while `broken` is non-empty."""

    kind: str = "ledger"
    taken: dict[tuple[str, int], int] = {}
    broken: list[str] = []
    _resting: bool = PrivateAttr(default=False)

    def get(self, scope: Scope, message: Message | None, limit: int) -> list[Recall]:
        return []

    def update(self, scope: Scope, entries: Sequence[Entry]) -> None:
        if self.broken:
            raise ConnectionError(self.broken[0])
        for entry in entries:
            self.taken[entry.session_id, entry.seq] = (
                self.taken.get((entry.session_id, entry.seq), 0) + 1
            )

    def delete(self, scope: Scope) -> None:
        for key in [k for k in self.taken if k[0] == scope.session_id and k[1] > scope.after]:
            del self.taken[key]


@pytest.fixture
def ledger() -> Ledger:
    return Ledger(taken={}, broken=[])


def test_an_outage_is_caught_up_in_order_and_once(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wrong: what left the window during an outage never reaches the block, or reaches it twice."""
    clock = [0.0]
    monkeypatch.setattr("agent_memory.engine.backoff.monotonic", lambda: clock[0])
    with AgentMemory(
        store="memory://", max_tokens=200, overflow=FlushToLTM(blocks=[ledger], max_stm_ratio=0.8)
    ) as memory:
        bound = memory.blocks["ledger"]
        assert isinstance(bound, Ledger)
        bound.broken.append("down")
        for i in range(40):
            head = memory.update("s", user(f"Message number {i}"))
        assert head.start > 20
        assert bound.taken == {}
        assert any("'ledger' could not absorb" in one for one in memory.get("s").warnings)
        bound.broken.clear()
        memory.update("s", user("still resting"))
        assert bound.taken == {}
        clock[0] += 1000
        head = memory.update("s", user("back"))
        assert bound.taken == {("s", seq): 1 for seq in range(1, head.start + 1)}
        assert memory.get("s").warnings == []


def test_a_failing_strategy_never_fails_an_update(caplog: pytest.LogCaptureFixture) -> None:
    """Wrong: a bug in somebody's strategy loses a message or raises from `update`."""

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
    """A strategy that does not care about tool groups, nor about its limit."""

    kind: str = "splits_pairs"

    def cut(self, window: Window) -> Cut | None:
        return Cut(window.entries[-2].seq, (window.entries[0].seq,))


def test_whole_turns_whatever_a_strategy_answers() -> None:
    """Wrong: the engine trusts a strategy with the tool pairs."""
    with AgentMemory(store="memory://", max_tokens=300, overflow=SplitsPairs()) as memory:
        for i in range(30):
            call = {"id": f"c{i}", "type": "function", "function": {"name": "f", "arguments": "{}"}}
            memory.update("s", user(f"Question {i}"))
            memory.update("s", {"role": "assistant", "content": None, "tool_calls": [call]})
            memory.update("s", {"role": "tool", "tool_call_id": f"c{i}", "content": "42"})
            context = memory.get("s")
            chat = context.to_messages()
            calls = [c["id"] for m in chat for c in m.get("tool_calls") or ()]
            assert calls == [m["tool_call_id"] for m in chat if m["role"] == "tool"]
            assert context.tokens <= 300


def test_a_message_beside_a_large_system_message() -> None:
    """Wrong: a message is refused, or no context shows it since the rules take all the room."""
    with AgentMemory(store="memory://", max_tokens=400, blocks=()) as memory:
        memory.update("s", {"role": "system", "content": "rule " * 250})
        memory.update("s", user("word " * 160))
        system, said = memory.get("s").to_messages()
        assert system["content"] == "rule " * 250
        assert said["content"].startswith("word word")
        assert "characters left out" in said["content"]
        memory.update("t", {"role": "system", "content": "rule " * 370})
        memory.update("t", user("hello"))
        context = memory.get("t")
        assert [one["role"] for one in context.to_messages()] == ["system", "user"]
        assert context.warnings == []
        memory.update("t", user("word " * 100))
        context = memory.get("t")
        assert "left out" in context.to_messages()[0]["content"]
        assert "system message" in context.warnings[0]


def test_another_tokenizer_than_the_log_was_counted_with(tmp_path: Path) -> None:
    """Wrong: after a change of model the old counts let a context pass its budget."""
    url = f"sqlite:///{tmp_path}/m.db"
    text = "Überraschung: 東京特許許可局 " * 4
    with AgentMemory(store=url, max_tokens=2000, model="openai/gpt-4o", overflow=Trim()) as memory:
        for _ in range(25):
            memory.update("s", user(text))
    with AgentMemory(store=url, max_tokens=2000, model="openai/gpt-4", overflow=Trim()) as memory:
        context = memory.get("s")
        assert context.tokens == memory._counter.context(context.to_messages())
        assert context.tokens <= 2000


def test_a_deletion_that_was_interrupted_is_finished(ledger: Ledger) -> None:
    """Wrong: a half-deleted session shows, or comes back."""
    blocks = [ledger]
    with AgentMemory(store="memory://", blocks=blocks) as memory:
        memory.update("s", user("secret"), user_id="a")

        def fail(scope: Scope) -> None:
            raise ConnectionError("down")

        bound = memory.blocks["ledger"]
        object.__setattr__(bound, "delete", fail)
        with pytest.raises(ConnectionError):
            memory.delete("s")
        assert memory.history("s") == []
        assert memory.sessions() == []
        assert memory.get("s").messages == []
        object.__delattr__(bound, "delete")
        head = memory.update("s", user("fresh"), user_id="b")
        assert (head.end, head.user_id) == (1, "b")
        assert [entry.message.content for entry in memory.history("s")] == ["fresh"]


class Slow(Block):
    """Takes longer for a batch than a lease lasts."""

    kind: str = "slow"
    calls: list[str] = []

    def get(self, scope: Scope, message: Message | None, limit: int) -> list[Recall]:
        return []

    def update(self, scope: Scope, entries: Sequence[Entry]) -> None:
        self.calls.append("begin")
        time.sleep(2.0)
        self.calls.append("end")

    def delete(self, scope: Scope) -> None:
        return None


def test_long_work_keeps_its_lease(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: a second worker takes over what the first is still at, and does it again."""
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
