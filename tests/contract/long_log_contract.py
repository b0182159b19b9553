"""Contract tests for a session of 100,000 entries."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from agent_memory.core.messages import Message
from agent_memory.core.records import Entry, Head
from agent_memory.stores.base import Counts, Store
from agent_memory.testing.contract import Contract, draft, stored

Steps = Callable[[Callable[[Store], Any]], int]
"""Does something with a handle; how many steps it took the database."""

SHORT = 1000

_CALLS: dict[str, Callable[..., Any]] = {
    "head": lambda store, session_id: store.head(session_id),
    "a page at the end": lambda store, session_id: store.read(
        session_id, after=stored(store, session_id).end - 5
    ),
    "a page": lambda store, session_id: store.read(session_id, after=SHORT // 2, limit=5),
    "pick": lambda store, session_id: store.pick(session_id, [7, SHORT // 2, SHORT - 1]),
    "append": lambda store, session_id: store.append(session_id, [draft("x")]),
    "append a list": lambda store, session_id: store.append(session_id, [draft("x")] * 5),
    "move": lambda store, session_id: store.move(
        replace(stored(store, session_id), start=SHORT // 2)
    ),
    "cut": lambda store, session_id: store.rewrite(
        stored(store, session_id), stored(store, session_id).end - 1
    ),
    "rewrite": lambda store, session_id: _rewrite(store, stored(store, session_id)),
    "put off": lambda store, session_id: store.schedule(stored(store, session_id), 60),
}


def _rewrite(store: Store, head: Head) -> None:
    after = head.end - 2
    log = store.read(head.session_id, after=after)
    said = [replace(one, message=Message(role="user", content="y")) for one in log]
    assert store.rewrite(head, after, said) is not None


class LongLogContract(Contract):
    """Contract of a `SessionStore` with logs of `long` entries."""

    long = 30_000

    @pytest.fixture
    def steps(self) -> Steps | None:
        """Return what a call costs the database, or None if that cannot be counted."""
        return None

    def fill(self, store: Store, session_id: str, count: int) -> None:
        """Make a session with this many entries of three tokens each."""
        for _ in range(count // 1000):
            store.append(session_id, [draft("x")] * 1000)

    def test_calls_read_few_entries(self, store: Store, other: Store, steps: Steps | None) -> None:
        """Wrong: a call about a few entries reads the whole log, or returns wrong ones."""
        long = self.long
        self.fill(store, "long", long)
        self.fill(store, "short", SHORT)
        if steps is not None:
            _check_costs(steps)
        end = store.append("long", [draft("x")]).end
        assert end > long
        for handle in (store, other):
            assert (stored(handle, "long").end, stored(handle, "long").total) == (end, 3 * end)

        def seqs(entries: list[Entry]) -> list[int]:
            assert all(entry.total == 3 * entry.seq for entry in entries)
            return [entry.seq for entry in entries]

        assert seqs(other.read("long", after=end - 3)) == [end - 2, end - 1, end]
        assert seqs(other.read("long", after=20_000, limit=2)) == [20_001, 20_002]
        assert seqs(other.pick("long", [end, 1, 17_777])) == [1, 17_777, end]
        cut = other.rewrite(stored(other, "long"), long - 10)
        assert (cut.end, cut.total) == (long - 10, 3 * long - 30)
        assert store.append("long", [draft("x")] * 2).total == 3 * long - 24
        moved = store.move(replace(stored(store, "long"), expired=long - 100))
        assert moved is not None
        assert seqs(other.read("long")) == list(range(long - 99, long - 7))
        assert other.counts() == Counts(2, 92 + stored(store, "short").end)
        other.delete("long")
        assert store.read("long") == []
        assert store.counts().sessions == 1


def _check_costs(steps: Steps) -> None:
    """Assert that no call about a few entries costs more on the long log."""
    for name, call in _CALLS.items():
        cost: dict[str, int] = {}
        for session in ("long", "short") * 4:  # first calls prepare statements and fill tails
            took = steps(partial(call, session_id=session))
            # the network may split one request in two
            cost[session] = min(took, cost.get(session, took))
        assert cost["long"] <= 1.5 * cost["short"] + 2, (name, cost)
