"""Contract tests for due sessions and for writes under a lease.

`StoreContract` contains all contract tests of a store.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from agent_memory.core.idempotency import KeptKey, Once, digest_of, key_of
from agent_memory.core.records import Head, Lease, Record
from agent_memory.errors import LeaseLost
from agent_memory.retrieval.features import Features
from agent_memory.retrieval.query import Query
from agent_memory.stores.base import SessionStore, Store
from agent_memory.testing.comparing import KernelContract
from agent_memory.testing.contract import DAY, draft, ranked, record, stored, together
from agent_memory.testing.locks import LockContract
from agent_memory.testing.records import RecordStoreContract
from agent_memory.testing.rewriting import entries
from agent_memory.testing.sessions import SessionStoreContract
from agent_memory.testing.vectors import VectorStoreContract

_VECTOR = np.array([[1.0, 0.0]], dtype=np.float32)
_TRAITS = Features.of_vectors(_VECTOR)
_LEASE = Lease("s", "w1")
_A_YEAR = 365 * 86_400
_KEY = KeptKey(key_of("k", []).name, digest_of([]), 1, 1, 3, DAY)

WRITES: dict[str, Callable[[Store, Head, Lease], Any]] = {
    "move": lambda store, head, lease: store.move(replace(head, start=1), lease=lease),
    "rewrite": lambda store, head, by: store.rewrite(head, 1, entries(2, 3, total=3), lease=by),
    "put_records": lambda store, _, lease: store.put_records(
        "facts", [record("new")], replacing=("s", 1, 2), lease=lease
    ),
    "delete_records": lambda store, _, by: store.delete_records("facts", owner="user:a", lease=by),
    "put_vectors": lambda store, _, by: store.put_vectors("v", [record("new")], _TRAITS, lease=by),
    "delete_vectors": lambda store, _, by: store.delete_vectors("v", session_id="s", lease=by),
    "put_keys": lambda store, _, by: store.put_keys("s", [_KEY], lease=by),
}
"""Writes that accept a lease, by name. Each is called with the head of a `filled` session."""


def _take_over(store: Store) -> None:
    assert store.lease("s", "w1", 0)
    assert store.lease("s", "w2", 60)


def _give_back(store: Store) -> None:
    assert store.lease("s", "w1", 60)
    store.release("s", "w1")


def _delete(store: Store) -> None:
    assert store.lease("s", "w1", 60)
    store.delete("s")


def _begin_anew(store: Store) -> None:
    _delete(store)
    store.append("s", [draft("a"), draft("b")], "u")


def _hold_another(store: Store) -> None:
    store.append("t", [draft("a")])
    assert store.lease("t", "w1", 60)


_LOSSES: dict[str, Callable[[Store], None]] = {
    "taken over": _take_over,
    "given back": _give_back,
    "deleted": _delete,
    "begun anew": _begin_anew,
    "of another session": _hold_another,
}


def filled(store: Store) -> Head:
    """Create a session with two entries, a fact and a vector."""
    store.open_vectors("v", 2, "m")
    store.append("s", [draft("a"), draft("b")], "u")
    store.put_records("facts", [record("old")])
    store.put_vectors("v", [record("old")], _TRAITS)
    return stored(store)


def all_of(store: Store) -> Any:
    """Return all data that `filled` stored for a session."""
    ranking = ranked(store.search_vectors("v", "user:a", Query(_VECTOR[0]), 9))
    records = [record for record, _ in ranking]
    facts = store.records("facts", "user:a")
    return store.head("s"), store.read("s"), store.keys("s"), facts, records


def _names(store: SessionStore, limit: int = 100) -> list[str]:
    return [head.session_id for head in store.due(limit)]


def _look(store: SessionStore, session_id: str = "s", seconds: float | None = None) -> Head:
    """Act as a worker that finds nothing to do."""
    head = stored(store, session_id)
    assert store.schedule(head, seconds) is True
    return head


class WorkStoreContract(LockContract):
    """Contract of a `Store` for workers."""

    @pytest.mark.parametrize("seconds", [0, 60])
    @pytest.mark.parametrize("write", WRITES)
    def test_the_holder_of_a_lease_can_write(
        self, store: Store, other: Store, write: str, seconds: int
    ) -> None:
        """Wrong: a worker cannot write under its lease, or under an ended one that no one took."""
        head = filled(store)
        before = all_of(store)
        assert other.lease("s", "w1", seconds)
        WRITES[write](store, head, _LEASE)
        assert all_of(other) != before

    @pytest.mark.parametrize("loss", _LOSSES)
    @pytest.mark.parametrize("write", WRITES)
    def test_a_write_under_a_lost_lease_is_refused(
        self, store: Store, other: Store, write: str, loss: str
    ) -> None:
        """Wrong: a stalled worker overwrites its successor's work."""
        head = filled(store)
        _LOSSES[loss](other)
        before = all_of(store)
        with pytest.raises(LeaseLost, match="'s'"):
            WRITES[write](store, head, _LEASE)
        assert all_of(store) == all_of(other) == before

    def test_an_implausibly_long_lease_can_be_taken_over(self, store: Store, other: Store) -> None:
        """Wrong: a dead worker with a clock a year ahead blocks its session for a year."""
        head = filled(store)
        assert store.lease("s", "w1", _A_YEAR)
        assert _names(other) == ["s"]
        assert other.lease("s", "w2", 60)
        assert _names(store) == []
        assert not store.lease("s", "w1", 60)
        with pytest.raises(LeaseLost):
            store.move(replace(head, start=1), lease=_LEASE)

    def test_leases_of_two_namespaces_are_independent(self, store: Store, elsewhere: Store) -> None:
        """Wrong: a lease in one namespace allows writes in another."""
        head = filled(store)
        elsewhere.append("s", [draft("a")])
        assert elsewhere.lease("s", "w1", 60)
        with pytest.raises(LeaseLost):
            store.move(head, lease=_LEASE)

    def test_a_takeover_stops_the_old_writer_immediately(self, store: Store, other: Store) -> None:
        """Wrong: a worker that loses its lease between the check and the write can still write."""
        filled(store)

        def stalled(name: str, lease: Lease, written: threading.Event) -> None:
            with suppress(LeaseLost):
                for n in range(20):
                    store.put_records("facts", [record(f"{name}{n}")], lease=lease)
                    written.set()

        def successor(owner: str, written: threading.Event) -> list[Record]:
            assert written.wait(60)
            assert other.lease("s", owner, 0)
            return other.records("facts", "user:a")

        for n in range(15):
            lease, written = Lease("s", f"stalled{n}"), threading.Event()
            assert store.lease("s", lease.owner, 0)
            late = [partial(stalled, f"{n}{name}", lease, written) for name in "abcd"]
            facts, *_ = together([partial(successor, f"successor{n}", written), *late])
            assert store.records("facts", "user:a") == facts

    def test_a_session_is_due_after_its_shortest_delay(self, store: Store, other: Store) -> None:
        """Wrong: each message wakes a worker for a session that is meant to wait.

        Also wrong: a session that may wait is processed too late, or delays an urgent one.
        """
        store.append("s", [draft("a")], "u", within=3600)
        store.append("s", [draft("b")], within=3600)
        assert store.append_once("s", [draft("c")], Once(expected_end=2), within=3600).places
        store.append_once("t", [draft("a")], Once(), within=3600)
        assert other.due() == []
        soon = other.append("s", [draft("d"), draft("e")], within=0.3)
        deadline = time.monotonic() + 10
        while not (due := other.due()):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert due == [soon]
        again = store.append("s", [draft("f")], within=3600)
        assert other.due() == [again]
        now = store.append("t", [draft("b")])
        assert other.due() == [again, now]

    def test_due_alternates_between_users(self, store: Store) -> None:
        """Wrong: one user's thousand sessions delay all other users."""
        for name in ("a1", "a2", "a3", "a4"):
            store.append(name, [draft("x")], "a")
        for name in ("c", "b"):
            store.append(name, [draft("x")])
        for name, user in (("b1", "b"), ("c1", "c"), ("b2", "b")):  # named after their users
            store.append(name, [draft("x")], user)
        expected = ["a1", "c", "b", "b1", "c1", "a2", "b2", "a3", "a4"]
        assert _names(store) == expected
        assert [_names(store, n) for n in range(10)] == [expected[:n] for n in range(10)]

    def test_a_due_session_keeps_its_place_in_the_queue(self, store: Store) -> None:
        """Wrong: a session with constant writes is never processed."""
        for name in ("s", "t"):
            store.append(name, [draft("x")])
        for name in ("t", "s"):
            store.append(name, [draft("y")])
        store.schedule_all()
        assert _names(store) == ["s", "t"]
        _look(store)
        store.append("s", [draft("z")])
        assert _names(store) == ["t", "s"]

    def test_due_omits_leased_sessions(self, store: Store, other: Store) -> None:
        """Wrong: several workers take one session, or a dead worker's session is never taken."""
        for name in ("s", "t"):
            store.append(name, [draft("x")])
        assert store.lease("s", "w1", 60)
        assert _names(other) == ["t"]
        assert store.lease("s", "w1", 0)
        assert _names(other) == ["s", "t"]
        assert store.lease("s", "w1", 60)
        store.release("s", "w1")
        assert _names(other) == ["s", "t"]

    def test_a_postponed_session_becomes_due_again(self, store: Store, other: Store) -> None:
        """Wrong: failed work is retried without a pause, or never."""
        head = store.append("s", [draft("x")])
        assert store.schedule(head, 3600) is True
        assert other.due() == []
        assert store.schedule(head, 0.01) is True
        while not other.due():
            time.sleep(0.005)
        assert other.due() == [head]
        assert store.schedule(head, 3600) is True
        assert other.due() == []
        other.append("s", [draft("y")])
        assert _names(store) == ["s"]

    @pytest.mark.parametrize("seconds", [None, 0.0, 3600.0])
    def test_schedule_is_refused_after_a_change_of_the_session(
        self, store: Store, other: Store, seconds: float | None
    ) -> None:
        """Wrong: a message that arrived while a worker finished is never absorbed."""

        def refused(head: Head) -> None:
            """Assert that `schedule` is refused, and leaves the due sessions unchanged."""
            due = other.due()
            assert store.schedule(head, seconds) is False
            assert other.due() == due

        head = store.append("s", [draft("a"), draft("b")])
        other.append("s", [draft("c")])
        refused(head)
        head = _look(store)
        assert other.move(replace(head, start=1)) is not None
        refused(head)
        head = _look(store)
        assert other.rewrite(head, 1) is not None
        other.append("s", [draft("b"), draft("c")])
        refused(head)
        head = _look(store)
        other.append("s", [draft("d")], "u")
        refused(head)
        head = stored(store)
        other.delete("s")
        refused(head)
        anew = other.append("s", [draft("d")])
        refused(replace(head, end=anew.end, version=anew.version))

    def test_schedule_all_makes_every_session_due(self, store: Store, other: Store) -> None:
        """Wrong: a new block never receives the messages of inactive sessions."""
        store.schedule_all()
        for name in ("s", "t", "r"):
            store.append(name, [draft("x")])
        _look(store, "s")
        _look(store, "t", 3600)
        assert store.lease("s", "w1", 60)
        other.schedule_all()
        assert sorted(_names(store)) == ["r", "t"]
        assert _names(store)[0] == "r"
        store.release("s", "w1")
        assert sorted(_names(store)) == ["r", "s", "t"]

    def test_namespaces_have_independent_due_sessions(self, store: Store, elsewhere: Store) -> None:
        """Wrong: a worker of one namespace takes or postpones the sessions of another."""
        head = store.append("s", [draft("x")])
        assert elsewhere.due() == []
        assert elsewhere.schedule(head, None) is False
        other_head = elsewhere.append("s", [draft("x")])
        assert elsewhere.schedule(other_head, None) is True
        assert store.due() == [head]
        _look(store)
        elsewhere.schedule_all()
        assert store.due() == []
        assert elsewhere.due() == [other_head]

    def test_no_concurrent_append_is_missed_by_workers(self, store: Store, other: Store) -> None:
        """Wrong: a message that arrives while a worker finishes waits forever."""
        names = [f"s{n}" for n in range(3)]
        ends = dict.fromkeys(names, 0)

        def write(handle: Store) -> None:
            for name in names:
                handle.append(name, [draft("x")])

        def look(handle: Store) -> None:
            for head in handle.due():
                handle.read(head.session_id, after=head.end - 1)
                if handle.schedule(head, None):
                    ends[head.session_id] = max(ends[head.session_id], head.end)

        handles = [store, other] * 2
        calls = [partial(work, handle) for handle in handles for work in (write, look)]
        for times in range(1, 16):
            together(calls)
            waiting = _names(store)
            for name in names:
                assert stored(store, name).end == 4 * times
                assert name in waiting or ends[name] == 4 * times
        look(store)
        assert store.due() == []
        assert ends == dict.fromkeys(names, 60)

    def test_a_secure_erase_keeps_undeleted_data(self, store: Store, other: Store) -> None:
        """Wrong: `scrub` damages data that was not deleted, or fails if nothing was deleted."""
        store.secure_erase()
        filled(store)
        store.append("t", [draft("gone" * 1000)])
        store.delete("t")
        before = all_of(store)
        store.secure_erase()
        assert all_of(store) == all_of(other) == before
        other.append("s", [draft("more")])
        assert stored(store).end == 3


class StoreContract(
    SessionStoreContract,
    WorkStoreContract,
    RecordStoreContract,
    VectorStoreContract,
    KernelContract,
):
    """Subclass this class and define the fixture `store`; see `testing.contract`."""
