"""Contract tests for importing sessions into a store; see `transfer.importer`."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from agent_memory import AgentMemory, Message, Trim
from agent_memory.core.records import Entry, Head, Lease, Summary
from agent_memory.engine.leases import LEASE_SECONDS, Leases
from agent_memory.engine.transfer.importer import import_transaction
from agent_memory.errors import SessionDeleting, StoreError
from agent_memory.stores.base import Counts, SessionStore, Store
from agent_memory.testing.contract import DAY, Contract, begun, draft, entries, record, stored

_HEAD = begun(
    start=4, start_total=12, pinned=(2,), pinned_tokens=3,
    system=Message(role="system", content="rules", created_at=DAY), system_tokens=4,
    summary=Summary("so far", 6, 3, "local", redo_after=0), cursors={"vector": 7},
    end=30, total=90, version=17,
)  # fmt: skip
"""A session as it stands where it comes from."""


def _bring(store: SessionStore, head: Head, log: list[Entry]) -> Head | None:
    """Import a session in parts of ten entries."""
    with import_transaction(store, Leases(store), head, log[:10]) as arrival:
        if arrival is None:
            return None
        for at in range(10, len(log), 10):
            arrival.add(log[at : at + 10])
        return arrival.show(head)


def _memory(store: Store) -> AgentMemory:
    return AgentMemory(store=store, overflow=Trim())


class ImportContract(Contract):
    """Contract of a `Store` for imported sessions."""

    @pytest.mark.parametrize("count", [0, 1, 10, 30])
    def test_an_import_is_complete_and_due(self, store: Store, other: Store, count: int) -> None:
        """Wrong: an imported session lacks data, or no worker continues it."""
        log = entries(1, count)
        arrived = _bring(store, _HEAD, log)
        assert arrived == replace(_HEAD, end=count, total=3 * count, version=arrived.version)
        assert stored(other) == arrived
        assert other.read("s") == log
        assert other.existing(["s"]) == {"s"}
        assert [head.session_id for head in other.due()] == ["s"]
        assert other.counts() == Counts(sessions=1, entries=count)
        with _memory(other) as memory:
            assert memory.history("s") == log
        assert store.append("s", [draft("on")], "u").end == count + 1
        assert other.lease("s", "w", 60)

    def test_imports_keep_seqs_of_partly_expired_sessions(self, store: Store, other: Store) -> None:
        """Wrong: a partly expired session cannot be imported, or its messages get other numbers."""
        log = entries(21, 50, total=60)
        arrived = _bring(store, replace(_HEAD, expired=20, start=24), log)
        assert (arrived.expired, arrived.end, arrived.total) == (20, 50, 150)
        assert other.read("s") == log
        assert other.append("s", [draft("on")]).end == 51

    def test_a_session_is_invisible_until_its_import_ends(self, store: Store, other: Store) -> None:
        """Wrong: a context, a worker or a writer uses a session that is half imported."""
        log = entries(1, 30)
        with import_transaction(store, Leases(store), _HEAD, log[:10]) as arrival:
            assert arrival is not None
            for at in (10, 20):
                assert other.existing(["s"]) == set()
                assert other.due() == []
                assert not other.lease("s", "worker", 60)
                with pytest.raises(SessionDeleting):
                    other.append("s", [draft("mine")], "u")
                with _memory(other) as memory:
                    assert memory.history("s") == []
                    assert list(memory.sessions()) == []
                    assert memory.get("s", user_id="u").messages == []
                arrival.add(log[at : at + 10])
            assert stored(other).deleting
            arrival.show(_HEAD)
            assert other.existing(["s"]) == {"s"}
            assert other.due() == []
        assert [head.session_id for head in other.due()] == ["s"]
        assert other.read("s") == log

    def test_an_import_survives_the_deletion_of_its_hidden_session(
        self, store: Store, other: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Wrong: an import fails because a worker erased the hidden session before its lease."""
        leases, hold, erased = Leases(store), Leases.hold, list[str]()

        def late(self: Leases, session_id: str, **options: Any) -> Any:
            if self is leases and not erased:
                erased.append(session_id)
                with _memory(other) as memory:
                    memory.delete(session_id)
            return hold(self, session_id, **options)

        monkeypatch.setattr(Leases, "hold", late)
        log = entries(1, 5)
        with import_transaction(store, leases, _HEAD, log) as arrival:
            arrival.show(_HEAD)
        assert erased == ["s"]
        assert other.read("s") == log

    @pytest.mark.parametrize("how", ["worker", "delete"])
    def test_interrupted_imports_can_be_retried(self, store: Store, other: Store, how: str) -> None:
        """Wrong: an interrupted import shows part of a session, or blocks the next attempt."""
        log = entries(1, 30)
        with import_transaction(store, Leases(store), _HEAD, log[:10]) as arrival:
            arrival.add(log[10:20])
            store.put_records("facts", [record("a", owner="user:u")], lease=arrival.lease)
        assert _bring(other, _HEAD, log) is None
        assert [head.deleting for head in other.due()] == [True]
        with _memory(other) as memory:
            if how == "worker":
                memory.flush()
            else:
                memory.delete("s")
            assert memory.history("s") == []
        assert other.head("s") is None
        assert other.counts() == Counts(sessions=0, entries=0)
        assert other.read("s") == []
        arrived = _bring(other, _HEAD, log)
        assert (stored(store), store.read("s")) == (arrived, log)

    def test_late_import(self, store: Store, other: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        """Wrong: a stalled import writes into the import that replaced it."""
        monkeypatch.setattr("agent_memory.engine.leases.LEASE_SECONDS", 0)
        log = entries(1, 30)
        stalled = ExitStack()
        arrival = stalled.enter_context(import_transaction(store, Leases(store), _HEAD, log[:10]))
        monkeypatch.setattr("agent_memory.engine.leases.LEASE_SECONDS", LEASE_SECONDS)
        with _memory(other) as memory:
            memory.flush()
        assert other.head("s") is None
        with pytest.raises(StoreError):
            arrival.add(log[10:20])
        theirs = entries(1, 10, " theirs")
        with import_transaction(other, Leases(other), _HEAD, theirs) as second:
            assert second is not None
            with pytest.raises(StoreError):
                arrival.add(log[10:20])
            with pytest.raises(StoreError):
                arrival.show(_HEAD)
            shown = second.show(_HEAD)
        for late in (partial(arrival.add, log[10:20]), partial(arrival.show, _HEAD)):
            with pytest.raises(StoreError):
                late()
        stalled.close()
        assert stored(other) == shown
        assert other.read("s") == theirs

    def test_an_import_does_not_continue_another_import(self, store: Store, other: Store) -> None:
        """Wrong: an import continues the entries that another import began in its place."""
        log, theirs = entries(1, 20, " ours"), entries(1, 10, " theirs")

        class Late(Leases):
            """A worker erases the session, and another import begins it, before the lease."""

            @contextmanager
            def hold(self, session_id: str, *, waiting: bool = False) -> Iterator[Lease | None]:
                other.delete("s")
                hidden = replace(_HEAD, version=0, deleting=True)
                assert other.rewrite(hidden, 0, theirs[:1]) is not None
                with super().hold(session_id, waiting=waiting) as lease:
                    yield lease

        with import_transaction(store, Late(store), _HEAD, log[:10]) as arrival:
            arrival.add(log[10:])
            arrival.show(_HEAD)
        assert other.read("s") == log
