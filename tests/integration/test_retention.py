"""Logs are kept as long as configured and as long as something reads them. Pruned windows."""

import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from agent_memory import AgentMemory, AgentMemoryConfig, Strategy, Summarize, Trim, VectorMemory
from agent_memory.core.records import Entry, Scope
from agent_memory.errors import InvalidBudget, InvalidInput, InvalidSetting, UnsupportedOperation
from agent_memory.strategies import Chain, Cut, FlushToLTM, Window
from tests.kit import Silent

OLD = datetime(2020, 1, 1, tzinfo=UTC)


class Keeper(Silent):
    """Record the seqs of its updates. Fail on request."""

    kind: Any = "keeper"
    taken: list[int] = []
    failing: list[bool] = []

    def update(self, scope: Scope, entries: Sequence[Entry]) -> None:
        if self.failing:
            raise OSError("the block's service is down")
        self.taken.extend(entry.seq for entry in entries)

    def delete(self, scope: Scope) -> None:
        self.taken[:] = [seq for seq in self.taken if seq <= scope.after]


def turn(number: int, **fields: Any) -> dict[str, Any]:
    role = "user" if number % 2 else "assistant"
    return {"role": role, "content": f"{number} " + "word " * 30, **fields}


def filled(memory: AgentMemory, count: int = 40, **fields: Any) -> None:
    for number in range(1, count + 1):
        memory.update("s", turn(number, **fields), user_id="u")


@pytest.mark.parametrize("store", ["memory://", "sqlite"])
def test_window_retention_keeps_exactly_the_shown_messages(url: str, store: str) -> None:
    """Wrong: messages that left the window stay in the log, or shown ones are removed."""
    settings: dict[str, Any] = {"overflow": Trim(), "blocks": []}
    store = url if store == "sqlite" else store
    with AgentMemory(store, max_tokens=400, retention="window", **settings) as memory:
        filled(memory)
        head = memory.sessions()[0]
        kept = memory.history("s")
        assert head.expired == head.start > 20
        assert [entry.seq for entry in kept] == list(range(head.expired + 1, 41))
        shown = [m.content for m in memory.get("s").messages]
        assert shown == [entry.message.content for entry in kept]
        assert memory.stats().entries == len(kept)
        memory.update("s", turn(41))
        assert memory.history("s")[-1].seq == 41


def test_messages_pending_for_a_failing_block_do_not_expire(url: str) -> None:
    """Wrong: messages that a failing block has not absorbed are removed."""
    keeper = Keeper(failing=[True])
    with AgentMemory(
        store=url, max_tokens=400, overflow=FlushToLTM(blocks=[keeper]), retention="window"
    ) as memory:
        filled(memory)
        assert len(memory.history("s")) == 40
        keeper.failing.clear()
        memory.flush()
        assert keeper.taken == list(range(1, 41))
        head = memory.sessions()[0]
        assert head.expired == head.start
        assert [e.seq for e in memory.history("s")] == list(range(head.expired + 1, 41))


def test_retention_by_age_uses_the_timestamp_of_the_message(url: str) -> None:
    """Wrong: retention goes by the time of storing, not by a message's own time."""
    month = timedelta(days=30)
    with AgentMemory(store=url, max_tokens=400, overflow=Trim(), retention=month) as memory:
        filled(memory, 10, created_at=OLD.isoformat())
        for number in range(11, 41):
            memory.update("s", turn(number))
        assert memory.sessions()[0].expired == 10
        assert memory.history("s")[0].seq == 11


def test_a_worker_expires_messages_of_inactive_sessions(url: str) -> None:
    """Wrong: messages of an inactive session never expire."""
    settings: dict[str, Any] = {"max_tokens": 400, "overflow": Trim(), "blocks": []}
    with AgentMemory(store=url, **settings) as memory:
        filled(memory)
    soon = timedelta(seconds=0.2)
    with AgentMemory(store=url, retention=soon, overflow_mode="background", **settings) as memory:
        deadline = datetime.now(UTC) + timedelta(seconds=20)
        head = memory.sessions()[0]
        while head.expired < head.start and datetime.now(UTC) < deadline:
            time.sleep(0.01)
            head = memory.sessions()[0]
        assert head.expired == head.start > 0


def test_a_pop_of_too_many_messages_keeps_the_numbering(url: str) -> None:
    """Wrong: popping more messages than there are restarts the numbering."""
    with AgentMemory(store=url, max_tokens=400, overflow=Trim(), retention="window") as memory:
        filled(memory)
        kept = memory.history("s")
        taken = memory.pop("s", 100)
        assert [m.content for m in taken] == [e.message.content for e in kept[1:]]
        memory.update("s", turn(99))
        assert [e.seq for e in memory.history("s")] == [kept[0].seq, kept[0].seq + 1]
        assert [m.content for m in memory.get("s").messages][-1] == turn(99)["content"]


def test_pop_of_the_only_message_left_is_refused(url: str) -> None:
    """Wrong: `pop` removes nothing without an error, where `edit` explains why."""
    with AgentMemory(store=url, max_tokens=400, overflow=Trim(), retention="window") as memory:
        filled(memory)
        memory.pop("s", 100)
        assert memory.pop("s", 0) == []
        for call in (lambda: memory.pop("s"), lambda: memory.edit("s", lambda log: [])):
            with pytest.raises(UnsupportedOperation, match="cannot be made empty"):
                call()
        assert len(memory.history("s")) == 1


def test_a_replay_keeps_records_of_expired_messages(url: str) -> None:
    """Wrong: a replay drops records whose messages have expired."""
    keeper = Keeper()
    with AgentMemory(
        store=url, max_tokens=400, overflow=FlushToLTM(blocks=[keeper]), retention="window"
    ) as memory:
        filled(memory)
        memory.flush()
        expired = memory.sessions()[0].expired
        assert expired > 0
        assert [step.error for step in memory.replay("keeper")] == [None]
        assert keeper.taken == list(range(1, 41))


@pytest.mark.parametrize("bad", ["week", 0, -5, timedelta(0)])
def test_bad_values_are_refused(bad: Any) -> None:
    """Wrong: an invalid value is accepted."""
    with pytest.raises(InvalidSetting):
        AgentMemoryConfig(retention=bad)


class Keeps(Strategy):
    """A strategy that never cuts by itself."""

    kind: str = "keeps"

    def cut(self, window: Window) -> Cut | None:
        return None


STRATEGIES = [
    Trim(), Trim(by="importance"), Trim(take_messages=2), Summarize(max_summary_tokens=60),
    FlushToLTM(blocks=[VectorMemory(embedding=None)]),
    Chain([FlushToLTM(blocks=[VectorMemory(embedding=None)]), Summarize(max_summary_tokens=60)]),
    Keeps(),
]  # fmt: skip


@pytest.fixture(params=STRATEGIES, ids=repr)
def memory(request: pytest.FixtureRequest) -> Iterator[AgentMemory]:
    with AgentMemory("memory://", max_tokens=4000, overflow=request.param, blocks=[]) as memory:
        memory.update("s", {"role": "system", "content": "Be short."}, user_id="ana")
        for i in range(20):
            said = f"Item {i} is coded QX-{i}: " + "so it is " * 6
            memory.update("s", {"role": "user", "content": said}, user_id="ana")
            memory.update("s", {"role": "assistant", "content": "Noted."}, user_id="ana")
        yield memory


def test_a_window_is_cut_to_a_number_of_tokens(memory: AgentMemory) -> None:
    """Wrong: `prune` keeps more tokens than asked for, or cuts within a turn."""
    log = memory.history("s")
    before = memory.head("s")
    for tokens in (600, 300, 100):
        head = memory.prune("s", tokens, user_id="ana")
        assert tokens / 2 < head.window_tokens <= tokens
        shown = [one for one in memory.get("s").to_messages() if one["role"] != "system"]
        assert shown[0]["role"] == "user"
        assert shown[-1]["content"] == "Noted."
    assert head.version > before.version
    again = memory.prune("s", 100)
    assert (again.start, again.version) == (head.start, head.version)
    assert memory.history("s") == log  # the log is whole


def test_prune_keeps_the_newest_step(memory: AgentMemory) -> None:
    """Wrong: pruning to a small number empties the window."""
    memory.prune("s", 1)
    assert [m.content for m in memory.get("s").messages][-1] == "Noted."


def test_pruned_messages_are_summarized_and_absorbed() -> None:
    """Wrong: pruned messages are neither summarized nor absorbed."""
    chain = Chain([FlushToLTM(blocks=[VectorMemory(embedding=None)]), Summarize()])
    with AgentMemory("memory://", max_tokens=4000, overflow=chain) as memory:
        for i in range(10):
            said = f"Item {i} is coded QX-{i}: " + "so it is " * 20
            memory.update("s", {"role": "user", "content": said})
        head = memory.prune("s", 200)
        assert head.summary.upto == head.start == head.cursors["vector"]
        assert "QX-0" in head.summary.text
    with AgentMemory("memory://", blocks=[]) as memory:
        memory.update("s", {"role": "user", "content": "Hi"}, user_id="ana")
        with pytest.raises(InvalidBudget):
            memory.prune("s", 0)
        with pytest.raises(InvalidInput):
            memory.prune("nowhere", 100)
