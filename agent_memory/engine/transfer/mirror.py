"""Copies the sessions and records of a migration, and compares both stores by checksums."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from hashlib import sha256
from itertools import chain, islice
from typing import Any

from agent_memory.core.idempotency import KeptKey
from agent_memory.core.messages import Message
from agent_memory.core.records import Entry, Head, Record
from agent_memory.engine.leases import Leases
from agent_memory.engine.paging import HEADS, LogChanged, all_heads, head_pages, keys_of, log_pages
from agent_memory.engine.system_records import stays_behind
from agent_memory.engine.transfer.importer import import_transaction
from agent_memory.errors import StoreError
from agent_memory.stores.base import RecordStore, SessionStore, VectorStore
from agent_memory.stores.damage import whole
from agent_memory.stores.kernel.coding import to_micros

_MODULUS = 2**256
_PAGE = 200
_STATES = "sessions"
_ENTRIES = 50
"""Entries per read. The number is small because entries may contain images."""


def _plain(value: Any) -> object:
    if isinstance(value, Message):
        return value.to_dict(), value.created_at
    if isinstance(value, datetime):
        return to_micros(value)
    return {field.name: getattr(value, field.name) for field in fields(value)}


# ASCII, so that lone surrogates can be encoded
_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":"), default=_plain).encode


def _digest(value: object) -> bytes:
    return sha256(_canonical(value).encode()).digest()


def head_digest(head: Head) -> bytes:
    """Return a digest of a head without `version`, `updated_at` and `metadata`."""
    return _digest(replace(head, version=0, updated_at=None, metadata={}))


def session_digest(head: Head, entries: Iterable[Entry], keys: Iterable[KeptKey] = ()) -> bytes:
    both = sha256(head_digest(head))
    for item in chain(entries, keys):
        both.update(_digest(item))
    return both.digest()


def record_digest(block: str, record: Record, blob: bytes = b"") -> bytes:
    """Return a digest of a block's record and, for a vector, of its features as bytes."""
    return sha256(_digest([block, record]) + blob).digest()


@dataclass(slots=True)
class Sums:
    """Counts records by kind, and adds up their checksums. The records may come in any order."""

    counts: Counter[str] = field(default_factory=Counter)
    sums: Counter[str] = field(default_factory=Counter)

    def add(self, kind: str, digest: bytes) -> None:
        self.counts[kind] += 1
        self.sums[kind] = (self.sums[kind] + int.from_bytes(digest)) % _MODULUS

    def differing(self, other: Sums) -> list[str]:
        """Return the kinds whose records differ, in alphabetical order."""
        kinds = self.counts.keys() | other.counts.keys()
        return sorted(kind for kind in kinds if self._of(kind) != other._of(kind))

    def _of(self, kind: str) -> tuple[int, int]:
        return self.counts[kind], self.sums[kind]


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A block's record with its checksum, and its features as bytes. A fact has no features."""

    block: str
    record: Record
    digest: bytes
    blob: bytes = b""

    @property
    def key(self) -> tuple[str, str]:
        return self.block, self.record.id


@dataclass(eq=False, repr=False)
class FactRecords:
    """A store's facts, except facts about the store itself and facts of sessions in `_leaving`.

    The sessions in `_leaving` are being deleted.
    """

    _store: RecordStore
    _leaving: Collection[str]

    def read(self) -> Iterator[StoredRecord]:
        for block, record in whole(self._store.all_records()):
            if not stays_behind(block, record) and record.session_id not in self._leaving:
                yield StoredRecord(block, record, record_digest(block, record))

    def put(self, records: Sequence[StoredRecord]) -> None:
        by_block: dict[str, list[Record]] = {}
        for stored in records:
            by_block.setdefault(stored.block, []).append(stored.record)
        for block, some in by_block.items():
            self._store.put_records(block, some)

    def remove(self, keys: Collection[tuple[str, str]]) -> None:
        for block, record_id in keys:
            self._store.delete_records(block, record_id=record_id)


@dataclass(eq=False, repr=False)
class VectorRecords:
    """The vectors of one block, except vectors of sessions in `_leaving`."""

    _store: VectorStore
    _block: str
    _leaving: Collection[str]

    def read(self) -> Iterator[StoredRecord]:
        from agent_memory.retrieval.segments import rounded
        from agent_memory.stores.feature_bytes import blobs_of

        for records, features in whole(self._store.all_vectors(self._block)):
            blobs, alike = blobs_of(records, features), blobs_of(records, rounded(features))
            for record, blob, same in zip(records, blobs, alike, strict=True):
                if record.session_id not in self._leaving:
                    digest = record_digest(self._block, record, same)
                    yield StoredRecord(self._block, record, digest, blob)

    def put(self, records: Sequence[StoredRecord]) -> None:
        from agent_memory.stores.feature_bytes import features_of

        if records:
            features = features_of([stored.blob for stored in records])
            self._store.put_vectors(self._block, [stored.record for stored in records], features)

    def remove(self, keys: Collection[tuple[str, str]]) -> None:
        """Remove the records with these keys, and all vectors with the same owner and session."""
        records = (stored.record for stored in self.read() if stored.key in keys)
        for owner, session_id in {(record.owner, record.session_id) for record in records}:
            self._store.delete_vectors(self._block, owner=owner, session_id=session_id)


RecordSet = FactRecords | VectorRecords
"""A set of a store's records, read in any order. `remove` may remove further records."""


def mirror(source: RecordSet, target: RecordSet, sums: Sums) -> Iterator[StoredRecord]:
    """Make the target's records equal to the source's, and yield each record of the source.

    Equal records are not written again, so a repeated call resumes an interrupted call. Records are
    compared by Python's hashes. Very rarely, two different records have the same hash. The next
    process then finds the difference, because its hashes have another salt.
    """
    there = _hashes(target)
    if there and (extra := there.keys() - _hashes(source)):
        target.remove({stored.key for stored in target.read() if hash(stored.key) in extra})
        there = _hashes(target)  # `remove` may have removed more records
    records = source.read()
    while page := list(islice(records, _PAGE)):
        target.put([each for each in page if there.get(hash(each.key)) != hash(each.digest)])
        for stored in page:
            sums.add(stored.block, stored.digest)
            yield stored


def _hashes(records: RecordSet) -> dict[int, int]:
    return {hash(stored.key): hash(stored.digest) for stored in records.read()}


def summed(records: RecordSet, sums: Sums) -> Iterator[StoredRecord]:
    """Add the checksum of each record to `sums`, by block, and yield the record."""
    for stored in records.read():
        sums.add(stored.block, stored.digest)
        yield stored


@dataclass(eq=False, repr=False)
class Sessions:
    """The sessions of two stores.

    A session with an unfinished deletion is copied without messages and stays marked as deleted. A
    worker on the target then finishes the deletion, also in blocks' own databases.
    """

    _source: SessionStore
    _target: SessionStore

    def __post_init__(self) -> None:
        self._leases = Leases(self._target)

    def bring(self) -> Iterator[Head]:
        """Copy the sessions that the target lacks. Yield the head of each session of the source."""
        for head, there in self._pairs():
            if there is None:
                self._bring(head)
            yield head

    def drop_others(self) -> None:
        """Remove from the target all sessions that the source does not have."""
        for heads in head_pages(self._target):
            names = [head.session_id for head in heads]
            for name in set(names) - self._source.existing(names):
                if self._source.head(name) is None:  # a head means: the deletion is unfinished
                    self._target.delete(name)

    def compare(self, sums: Sums, *, copies: bool) -> Iterator[tuple[Head, str | None]]:
        """Yield each session's head, and the kind of the difference or None.

        With `copies`, a session that differs is copied again, and then compared once more.
        """
        for head, there in self._pairs():
            compared, difference = self._compared(head, there or self._there(head), copies)
            sums.add(_STATES, _state(compared))
            yield compared, difference

    def summed(self) -> Sums:
        """Return the checksums of the source's current sessions."""
        sums = Sums()
        for head in whole(all_heads(self._source)):
            sums.add(_STATES, _state(_carried(head)))
        return sums

    def _compared(self, head: Head, there: Head | None, copies: bool) -> tuple[Head, str | None]:
        sent = self._digest(self._source, head)
        if sent is not None and sent == self._digest(self._target, there):
            return head, None
        if not copies:
            return head, "differs"
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
        """Yield, for each session of the source, the head to copy and the head in the target.

        The target's head is None if the current page of the target's heads lacks the session.
        """
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
        """Return the digest of a session. None if it is missing, or changed during the read."""
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
            self._target.delete(head.session_id)  # the target has an earlier or a partial copy
            if self._arrived(head):
                return
        except LogChanged:  # the comparison finds the difference
            return
        raise StoreError(
            f"Session {head.session_id!r} was created in the target by another process during the "
            "migration. Stop the processes that use the target, then repeat the call."
        )

    def _arrived(self, head: Head) -> bool:
        """Copy a session. Return False if the target already has a session with this id."""
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
    """Return the head to copy. If its session is being deleted, the copy has no messages."""
    if not head.deleting:
        return head
    marked = Head(head.session_id, head.user_id, created_at=head.created_at)
    return replace(marked, cursors=head.cursors, deleting=True)


def _state(head: Head) -> bytes:
    """Return a digest of a head with its version, which changes with every write."""
    return sha256(head_digest(head) + str(head.version).encode()).digest()
