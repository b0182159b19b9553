"""Sessions of a migration: copying them between stores, and comparing them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import replace

from agent_memory.core.records import Head
from agent_memory.engine.leases import Leases
from agent_memory.engine.paging import HEADS, LogChanged, all_heads, head_pages, keys_of, log_pages
from agent_memory.engine.transfer.importer import import_transaction
from agent_memory.engine.transfer.migration.records import Sums, head_digest, session_digest
from agent_memory.errors import StoreError
from agent_memory.stores.base import SessionStore
from agent_memory.stores.damage import whole

_STATES = "sessions"
_ENTRIES = 50
"""Entries per read. It is small because entries may contain images."""


class Sessions:
    """The sessions of two stores.

    A session with an unfinished deletion is copied without messages, in the same state. Its
    deletion is then finished in the target too, since blocks may hold records elsewhere.
    """

    def __init__(
        self, source: SessionStore, target: SessionStore, removing: Callable[[], None]
    ) -> None:
        self._source = source
        self._target = target
        self._leases = Leases(target)
        self._removing = removing

    def bring(self) -> Iterator[Head]:
        """Copy the sessions that the target lacks, and yield each head. `compare` verifies them."""
        for head, there in self._pairs():
            if there is None:
                self._bring(head)
            yield head

    def drop_others(self) -> None:
        """Remove the sessions from the target that the source does not have."""
        for heads in head_pages(self._target):
            names = [head.session_id for head in heads]
            for name in set(names) - self._source.existing(names):
                if self._source.head(name) is None:  # otherwise its deletion is unfinished
                    self._removing()
                    self._target.delete(name)

    def compare(self, seen: Sums) -> Iterator[tuple[Head, str | None]]:
        """Compare heads and logs, and copy differing sessions again.

        Yields:
            The head of each session, and the remaining difference, if any.
        """
        for head, there in self._pairs():
            compared, difference = self._compared(head, there or self._there(head))
            seen.add(_STATES, _state(compared))
            yield compared, difference

    def look(self) -> Iterator[tuple[Head, bool]]:
        """Yield each head, and whether the target has the same session. Nothing is copied."""
        for head, there in self._pairs():
            sent = self._digest(self._source, head)
            found = self._digest(self._target, there or self._there(head))
            yield head, sent is not None and sent == found

    def summed(self) -> Sums:
        """Return the checksums of the source's current sessions."""
        sums = Sums()
        for head in whole(all_heads(self._source)):
            sums.add(_STATES, _state(_carried(head)))
        return sums

    def _compared(self, head: Head, there: Head | None) -> tuple[Head, str | None]:
        sent = self._digest(self._source, head)
        if sent is not None and sent == self._digest(self._target, there):
            return head, None
        now = self._source.head(head.session_id)
        if now is None:
            return head, "deleted"
        now = _carried(now)
        self._bring(now)
        again = self._digest(self._source, now)
        if again is not None and again == self._digest(self._target, self._there(head)):
            return now, None
        return head, "differs" if again == sent else "changed"

    def _pairs(self) -> Iterator[tuple[Head, Head | None]]:
        """Yield each session of the source in its target form, with the target's, if on the same
        page."""
        after = None
        for heads in whole(head_pages(self._source)):
            page = self._target.sessions(limit=HEADS, after=after)
            there = {head.session_id: head for head in page}
            for head in heads:
                yield _carried(head), there.get(head.session_id)
            after = heads[-1].session_id

    def _there(self, head: Head) -> Head | None:
        return self._target.head(head.session_id)

    def _digest(self, store: SessionStore, head: Head | None) -> bytes | None:
        """Return the digest of a session. None if it is missing or changing."""
        if head is None:
            return None
        try:
            pages = log_pages(store, head, _ENTRIES)
            entries = (entry for page in pages for entry in page)
            return session_digest(head, entries, keys_of(store, head))
        except LogChanged:
            return None

    def _bring(self, head: Head) -> None:
        try:
            if self._arrived(head):
                return
            self._removing()  # an earlier or partial copy
            self._target.delete(head.session_id)
            if self._arrived(head):
                return
        except LogChanged:  # the comparison finds the difference
            return
        raise StoreError(
            f"Session {head.session_id!r} was created in the target by another process during the "
            "migration. Stop the processes that use the target, then repeat the call."
        )

    def _arrived(self, head: Head) -> bool:
        """Copy a session. Return False if the target has one already."""
        log = log_pages(self._source, head, _ENTRIES)
        first = next(log, [])
        if not first or first[-1].seq == head.end:
            if self._target.rewrite(replace(head, version=0), head.expired, first) is None:
                return False
            self._target.put_keys(head.session_id, keys_of(self._source, head))
            return True
        with import_transaction(self._target, self._leases, head, first) as transaction:
            if transaction is None:
                return False
            for page in log:
                transaction.add(page)
            keys = keys_of(self._source, head)
            self._target.put_keys(head.session_id, keys, lease=transaction.lease)
            transaction.show(head)
            return True


def _carried(head: Head) -> Head:
    """Return the form of a session in the target."""
    if not head.deleting:
        return head
    marked = Head(head.session_id, head.user_id, created_at=head.created_at)
    return replace(marked, cursors=head.cursors, deleting=True)


def _state(head: Head) -> bytes:
    """Return a digest of a head with its version, which changes with every write."""
    return hashlib.sha256(head_digest(head) + str(head.version).encode()).digest()
