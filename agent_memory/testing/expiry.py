"""Contract tests for session stores whose logs lose their oldest entries."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent_memory.core.records import Entry, Head
from agent_memory.stores.base import Counts, Store
from agent_memory.testing.contract import Contract, draft, stored, together

_HEAVY = "x" * 3_000


def _seqs(entries: list[Entry]) -> list[int]:
    return [entry.seq for entry in entries]


def _expire(store: Store, upto: int) -> Head:
    moved = store.move(replace(stored(store), expired=upto))
    assert moved is not None
    return moved


class ExpiryContract(Contract):
    """Contract of a `SessionStore` for a head's `expired` moving on."""

    @pytest.mark.parametrize("text", ["", _HEAVY], ids=["light", "heavy"])
    def test_what_expired_is_gone(self, store: Store, other: Store, text: str) -> None:
        """Wrong: expired entries can still be read, or others were removed."""
        store.append("s", [draft(f"{n}{text}", n) for n in range(1, 31)])
        store.append("t", [draft("other")])
        head = _expire(store, 12)
        assert (head.expired, head.end, head.total) == (12, 30, 465)
        assert stored(other) == head
        for handle in (store, other):
            assert _seqs(handle.read("s")) == list(range(13, 31))
            assert _seqs(handle.read("s", after=5, limit=2)) == [13, 14]
            assert _seqs(handle.read("s", after=14, limit=2)) == [15, 16]
            assert _seqs(handle.pick("s", [1, 12, 13, 30])) == [13, 30]
            assert handle.read("s")[0].message.content == f"13{text}"
        assert store.counts() == Counts(sessions=2, entries=19)

    def test_a_log_grows_on(self, store: Store, other: Store) -> None:
        """Wrong: seqs or running totals start again."""
        store.append("s", [draft(str(n)) for n in range(1, 6)])
        other.append("s", [draft("6")])
        assert _expire(store, 5).total == 18
        for handle in (other, store):
            head = handle.append("s", [draft("more", 2)])
            assert head.expired == 5
        assert (head.end, head.total) == (8, 22)
        assert _seqs(other.read("s")) == [6, 7, 8]
        assert [e.total for e in store.read("s")] == [18, 20, 22]

    def test_it_moves_on(self, store: Store) -> None:
        """Wrong: a second expiry removes too little or too much."""
        store.append("s", [draft(str(n)) for n in range(1, 11)])
        for upto in (2, 3, 9):
            _expire(store, upto)
            assert _seqs(store.read("s")) == list(range(upto + 1, 11))
        head = store.move(replace(stored(store), start=9))
        assert head is not None
        assert (head.expired, head.start) == (9, 9)
        assert _seqs(store.read("s")) == [10]

    def test_a_lost_swap_removes_nothing(self, store: Store, other: Store) -> None:
        """Wrong: a worker with an old head removes entries that another has yet to read."""
        store.append("s", [draft(str(n)) for n in range(1, 11)])
        stale = stored(store)
        assert other.move(replace(stale, start=4)) is not None
        assert store.move(replace(stale, expired=9)) is None
        assert _seqs(store.read("s")) == list(range(1, 11))

    def test_a_log_that_begins_later_is_cut(self, store: Store) -> None:
        """Wrong: taking messages back changes the log's start or leaves a wrong end."""
        store.append("s", [draft(str(n)) for n in range(1, 11)])
        head = store.rewrite(_expire(store, 4), 6)
        assert head is not None
        assert (head.expired, head.end, head.total) == (4, 6, 18)
        assert _seqs(store.read("s")) == [5, 6]
        assert store.append("s", [draft("again")]).end == 7

    def test_a_session_that_begins_anew_is_whole(self, store: Store) -> None:
        """Wrong: the first messages of a new session count as expired."""
        store.append("s", [draft(str(n)) for n in range(1, 6)])
        _expire(store, 4)
        store.delete("s")
        assert store.append("s", [draft("new")]).expired == 0
        assert _seqs(store.read("s")) == [1]

    def test_appends_meanwhile(self, store: Store, other: Store) -> None:
        """Wrong: a message that arrives during an expiry is lost, or old entries stay."""
        store.append("s", [draft(str(n)) for n in range(1, 21)])

        def expire() -> None:
            for upto in range(1, 16):
                while store.move(replace(stored(store), expired=upto)) is None:
                    pass

        def append() -> None:
            for n in range(20):
                other.append("s", [draft(f"new {n}")])

        together([expire, append, append])
        assert stored(store).end == 60
        assert _seqs(other.read("s")) == list(range(16, 61))
        assert store.counts().entries == 45
