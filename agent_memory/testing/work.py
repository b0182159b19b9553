"""Contract tests for locks, leases, due sessions, and writes under a lease.

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

from agent_memory.core.idempotency import Idempotency, KeyRecord, digest_of, key_of
from agent_memory.core.records import Head, Lease, Record
from agent_memory.errors import LeaseLost
from agent_memory.retrieval.features import Features
from agent_memory.retrieval.query import Query
from agent_memory.stores.base import Store
from agent_memory.testing.comparing import KernelContract
from agent_memory.testing.contract import (
    DAY,
    Contract,
    draft,
    entries,
    ranked,
    record,
    stored,
    together,
)
from agent_memory.testing.records import RecordStoreContract
from agent_memory.testing.sessions import SessionStoreContract
from agent_memory.testing.vectors import VectorStoreContract

_VECTOR = np.array([[1.0, 0.0]], dtype=np.float32)
_TRAITS = Features.of_vectors(_VECTOR)
_LEASE = Lease("s", "w1")
_KEY = KeyRecord(key_of("k", []).name, digest_of([]), 1, 1, 3, DAY)

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

_CLAIMS = [("lock", "unlock"), ("lease", "release")]
"""The methods that take and release a lock or lease. The tests call both kinds a claim."""


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


class WorkStoreContract(Contract):
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

    @pytest.mark.parametrize("write", WRITES)
    def test_a_write_under_a_lost_lease_is_refused(
        self, store: Store, other: Store, write: str
    ) -> None:
        """Wrong: a stalled worker overwrites its successor's work."""
        head = filled(store)
        assert other.lease("s", "w1", 0)
        assert other.lease("s", "w2", 60)
        before = all_of(store)
        with pytest.raises(LeaseLost, match="'s'"):
            WRITES[write](store, head, _LEASE)
        assert all_of(store) == all_of(other) == before

    @pytest.mark.parametrize(("take", "release"), _CLAIMS)
    def test_a_claim_expires_or_is_released(
        self, store: Store, other: Store, take: str, release: str
    ) -> None:
        """Wrong: a worker holds its claim forever, or another worker can end or renew it."""
        store.append("s", [draft("a")])
        assert getattr(store, take)("s", "w1", 0.01) is True
        while not getattr(other, take)("s", "w2", 60):
            time.sleep(0.005)
        getattr(store, release)("s", "w1")
        assert getattr(store, take)("s", "w1", 60) is False
        getattr(other, release)("s", "w2")
        assert getattr(store, take)("s", "w2", 60, renew=True) is False
        assert getattr(store, take)("s", "w1", 60) is True

    @pytest.mark.parametrize(("take", "release"), _CLAIMS)
    def test_only_one_worker_gets_the_claim(
        self, store: Store, other: Store, take: str, release: str
    ) -> None:
        """Wrong: of many racing workers, not exactly one gets the claim, or one gets an error."""
        handles = [store, other] * 4
        for name in ("s0", "s1", "s2"):
            store.append(name, [draft("a")])
        for n in range(20):
            name = f"s{n % 3}"  # the claim is new in rounds 0 to 2, later expired or released
            takes = [
                partial(getattr(handle, take), name, f"w{n}.{i}", 60)
                for i, handle in enumerate(handles)
            ]
            won = together(takes)
            assert sorted(won) == [False] * 7 + [True]
            winner = f"w{n}.{won.index(True)}"
            assert getattr(store, take)(name, winner, 0, renew=True)
            if n % 2:
                getattr(other, release)(name, winner)

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
        """Wrong: each message wakes a worker for a session that is meant to wait, or none does."""
        store.append("s", [draft("a")], within=3600)
        store.append("s", [draft("b")], within=3600)
        terms = Idempotency(expected_end=2)
        assert store.append_idempotent("s", [draft("c")], terms, within=3600).places
        assert other.due() == []
        soon = other.append("s", [draft("d")])
        assert store.due() == [soon]
        later = store.append("s", [draft("e")], within=3600)
        assert other.due() == [later]

    def test_schedule_is_refused_after_a_change_of_the_session(
        self, store: Store, other: Store
    ) -> None:
        """Wrong: a message that arrived while a worker finished is never absorbed."""
        head = store.append("s", [draft("a"), draft("b")])
        changes: list[Callable[[], object]] = [
            lambda: other.append("s", [draft("c")]),
            lambda: other.move(replace(head, start=1)),
            lambda: other.rewrite(head, 1, entries(2, 3, total=3)),
            lambda: other.append("s", [draft("d")], "u"),
            lambda: other.delete("s"),
        ]
        for change in changes:
            change()
            due = other.due()
            assert store.schedule(head, None) is False
            assert other.due() == due
            head = store.head("s") or head
        anew = other.append("s", [draft("d")])
        assert not store.schedule(replace(head, end=anew.end, version=anew.version), None)
        assert other.due() == [anew]

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
        assert [head.session_id for head in store.due()] == ["s"]

    def test_schedule_all_makes_every_session_due(self, store: Store, other: Store) -> None:
        """Wrong: a new block never receives the messages of inactive sessions."""
        store.schedule_all()
        heads = [store.append(name, [draft("x")]) for name in ("s", "t")]
        assert store.schedule(heads[0], None)
        assert store.schedule(heads[1], 3600)
        other.schedule_all()
        assert sorted(head.session_id for head in store.due()) == ["s", "t"]

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
            waiting = [head.session_id for head in store.due()]
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
