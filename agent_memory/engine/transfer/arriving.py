"""Bringing a session into a store: it is there for nobody until it is there as a whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from agent_memory.core.records import Entry, Head, Lease
from agent_memory.engine.leases import Leases
from agent_memory.errors import StoreError
from agent_memory.stores.base import SessionStore

_WAIT = 30.0


class Arrival:
    """A session on its way into a store.

    Until it has arrived it is one whose deletion has begun: no call shows it, nothing is recalled
    from it, and if it stops half-way, any worker erases it.

    Args:
        store: Where it arrives.
        head: As it stands there now.
        lease: To be handed on with every write that belongs to the session.
    """

    def __init__(self, store: SessionStore, head: Head, lease: Lease) -> None:
        self._store = store
        self._head = head
        self.lease = lease

    def begin(self, entries: Sequence[Entry]) -> None:
        """Write the first entries of its log, in place of what there is of it."""
        head = self._head
        written = self._store.rewrite(head, head.expired, entries, lease=self.lease)
        self._head = self._there(written)

    def add(self, entries: Sequence[Entry]) -> None:
        """Write the next entries of its log."""
        head = self._head
        self._head = self._there(self._store.rewrite(head, head.end, entries, lease=self.lease))

    def show(self, head: Head) -> Head:
        """Have it be there for all, with this head's fields; due, so that blocks go on with it."""
        here = self._head
        shown = replace(head, end=here.end, total=here.total, version=here.version, deleting=False)
        arrived = self._there(self._store.move(shown, lease=self.lease))
        self._store.put_off(arrived, 0)
        return arrived

    def _there(self, head: Head | None) -> Head:
        if head is None:
            raise StoreError(
                f"Session {self.lease.session_id!r} was changed by somebody else while it was "
                "brought in. It is not there; try again when nobody uses its id."
            )
        return head


@contextmanager
def arriving(
    store: SessionStore, leases: Leases, head: Head, first: Sequence[Entry]
) -> Iterator[Arrival | None]:
    """Begin a session that stands elsewhere with a head.

    Whoever has added all of it calls `show`; else it is left to be erased.

    Args:
        store: Where it arrives.
        leases: Of this store; they keep workers off.
        head: As it stands where it comes from.
        first: The first entries of its log; none only if it has none.

    Yields:
        What to write it with; None where there is a session of its id already, or one whose
        deletion is not finished.
    """
    hidden = replace(head, version=0, deleting=True)
    begun = store.rewrite(hidden, head.expired, first[:1])
    if begun is None:
        yield None
        return
    with leases.hold(head.session_id, _WAIT) as lease:
        if lease is None:  # a worker has just erased it
            raise StoreError(
                f"Session {head.session_id!r} could not be held while it is brought in. It is not "
                "there; try again."
            )
        arrival = Arrival(store, begun, lease)
        # all of it under the lease: before that a worker may have erased it, and another begun it
        arrival.begin(first)
        yield arrival
