"""Guarantees for handles on machines with different clocks, as tests."""

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta, tzinfo
from functools import wraps
from typing import Any, ClassVar, Self, cast

import pytest

from agent_memory.core.records import Lease
from agent_memory.errors import LeaseLost
from agent_memory.stores.base import Store
from agent_memory.testing.contract import Contract, draft, entries, stored
from agent_memory.testing.work import WRITES, all_of, filled

MINUTES = 5
YEAR = 400 * 24 * 60

_Handle = Callable[[Store, float], Store]


class _Date(datetime):
    """The stores' clock for the time when a session begins."""

    ahead: ClassVar[float] = 0

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Self:
        return cast("Self", datetime.now(tz) + timedelta(seconds=cls.ahead))


class _Ahead:
    """A handle whose calls see a clock that is ahead by some seconds."""

    def __init__(self, inner: Store, seconds: float, patch: pytest.MonkeyPatch) -> None:
        self._inner, self._seconds, self._patch = inner, seconds, patch

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)

        @wraps(value)
        def call(*args: Any, **kwargs: Any) -> Any:
            now = time.time
            with self._patch.context() as patch:
                patch.setattr(time, "time", lambda: now() + self._seconds)
                patch.setattr(_Date, "ahead", self._seconds)
                return value(*args, **kwargs)

        return call


class ClockContract(Contract):
    """Contract of a `Store` whose clients' clocks differ by minutes."""

    by_server = False

    @pytest.fixture
    def with_clock(self, monkeypatch: pytest.MonkeyPatch) -> _Handle:
        """Return a handle whose clock is ahead by some minutes, or behind."""
        for name, module in list(sys.modules.items()):
            if name.startswith("agent_memory.stores.") and vars(module).get("datetime") is datetime:
                monkeypatch.setattr(module, "datetime", _Date)
        return lambda store, minutes: cast("Store", _Ahead(store, 60 * minutes, monkeypatch))

    @pytest.mark.parametrize(("holds", "takes"), [(0, MINUTES), (-MINUTES, 0)])
    def test_a_lease_is_exclusive_if_clocks_differ(
        self, store: Store, other: Store, with_clock: _Handle, holds: int, takes: int
    ) -> None:
        """Wrong: two workers with different clocks both write under one lease."""
        head = filled(store)
        holder, taker = with_clock(store, holds), with_clock(other, takes)
        assert holder.lease("s", "w1", 60)
        taken = taker.lease("s", "w2", 60)
        assert taken is not self.by_server
        before = all_of(store)
        first, second = Lease("s", "w1"), Lease("s", "w2")
        if not taken:
            first, second = second, first
        else:
            assert not holder.lease("s", "w1", 60, renew=True)
        for write in WRITES.values():
            with pytest.raises(LeaseLost):
                write(holder, head, first)
        assert all_of(store) == before
        assert taker.move(replace(head, start=1), lease=second) is not None
        holder.release("s", first.owner)
        assert taker.lease("s", second.owner, 60, renew=True)

    @pytest.mark.parametrize("minutes", [MINUTES, YEAR])
    def test_a_lease_of_a_machine_with_a_fast_clock_can_be_taken_over(
        self, store: Store, other: Store, with_clock: _Handle, minutes: int
    ) -> None:
        """Wrong: a machine whose clock is ahead holds a session forever."""
        store.append("s", [draft("a")])
        ahead = with_clock(other, minutes)
        assert ahead.lease("s", "w1", 0)
        assert store.lease("s", "w2", 0)  # it would end in minutes, and no lease is that long
        assert with_clock(store, minutes + 0.1).lease("s", "w3", 0)
        assert not ahead.lease("s", "w1", 60, renew=True)

    @pytest.mark.parametrize(("holds", "takes"), [(0, MINUTES), (-MINUTES, 0)])
    def test_a_lock_is_exclusive_if_clocks_differ(
        self, store: Store, other: Store, with_clock: _Handle, holds: int, takes: int
    ) -> None:
        """Wrong: two workers with different clocks both hold one lock."""
        holder, taker = with_clock(store, holds), with_clock(other, takes)
        assert holder.lock("l", "w1", 60)
        taken = taker.lock("l", "w2", 60)
        assert taken is not self.by_server
        assert holder.lock("l", "w1", 60, renew=True) is not taken
        holder.unlock("l", "w1")
        assert taker.lock("l", "w2", 60, renew=True) is taken
        assert taker.lock("l", "w2", 60)

    def test_a_session_becomes_due(self, store: Store, other: Store, with_clock: _Handle) -> None:
        """Wrong: a session appended to by a machine with a wrong clock never falls due."""
        ahead, behind = with_clock(other, MINUTES), with_clock(other, -MINUTES)

        def due(handle: Store) -> list[str]:
            return [head.session_id for head in handle.due()]

        for name in ("s", "t"):
            ahead.append(name, [draft("a")])
        assert due(ahead) == ["s", "t"]
        assert due(store) == (["s", "t"] if self.by_server else [])
        assert due(with_clock(store, MINUTES + 0.1)) == ["s", "t"]
        store.append("t", [draft("b")])  # an append with the right clock corrects it
        assert "t" in due(store)
        store.schedule_all()
        assert sorted(due(store)) == ["s", "t"]
        for name in ("s", "t"):
            assert store.schedule(stored(store, name), None)
        assert due(ahead) == due(behind) == []
        behind.append("s", [draft("c")])
        assert due(store) == ["s"]
        assert store.schedule(stored(store), None)
        ahead.append("s", [draft("d")])
        assert due(with_clock(store, MINUTES + 0.1)) == ["s"]
        assert ahead.schedule(stored(store), 60)
        assert due(store) == []
        assert due(with_clock(store, MINUTES + 1.1)) == ([] if self.by_server else ["s"])

    def test_a_recreated_session_may_have_an_earlier_creation_time(
        self, store: Store, other: Store, with_clock: _Handle
    ) -> None:
        """Wrong: a new session with an earlier creation time is taken for the deleted one."""
        ahead, behind = with_clock(store, MINUTES), with_clock(other, -MINUTES)
        first = ahead.append("s", [draft("a"), draft("b")], "ann")
        behind.delete("s")
        anew = behind.append("s", [draft("c"), draft("d")], "bob")
        assert anew.created_at < first.created_at
        assert (anew.version, anew.end) == (first.version, first.end)
        for handle in (ahead, store, behind):
            assert handle.move(replace(first, start=1)) is None
            assert handle.rewrite(first, 1) is None
            assert handle.rewrite(first, 1, entries(2, 3)) is None
            assert handle.schedule(first, None) is False
        assert ahead.append("s", [draft("e")], "bob").end == 3
        assert [entry.message.text() for entry in store.read("s")] == ["c", "d", "e"]
        assert [entry.seq for entry in behind.read("s")] == [1, 2, 3]
        assert stored(store).created_at == anew.created_at
