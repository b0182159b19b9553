"""Records, vectors and checksums of a migration."""

from __future__ import annotations

import hashlib
import json
import os
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Protocol

from agent_memory.core.idempotency import KeptKey
from agent_memory.core.records import Entry, Head, Record
from agent_memory.engine.system_records import stays_behind
from agent_memory.stores.base import RecordStore, VectorStore
from agent_memory.stores.damage import whole
from agent_memory.stores.kernel.coding import head_fields, to_micros

_MODULUS = 2**256
# ASCII, so that lone surrogates can be encoded
_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode


@dataclass(slots=True)
class Sums:
    """The number of records of each kind, and the sum of their checksums, which ignores the order.

    Attributes:
        counts: By kind.
        sums: By kind, modulo 2 ** 256.
    """

    counts: Counter[str] = field(default_factory=Counter)
    sums: Counter[str] = field(default_factory=Counter)

    def add(self, kind: str, digest: bytes) -> None:
        """Add the checksum of a record."""
        self.counts[kind] += 1
        self.sums[kind] = (self.sums[kind] + int.from_bytes(digest)) % _MODULUS

    def differing(self, other: Sums) -> list[str]:
        """Return the kinds whose records differ, in order."""
        kinds = self.counts.keys() | other.counts.keys()
        return sorted(kind for kind in kinds if self._of(kind) != other._of(kind))

    def _of(self, kind: str) -> tuple[int, int]:
        return self.counts[kind], self.sums[kind]


def head_digest(head: Head) -> bytes:
    """Return a digest of a head without its version, which counts changes within one store."""
    fields = {
        **head_fields(head),
        "session_id": head.session_id,
        "user_id": head.user_id,
        "end": head.end,
        "total": head.total,
        "deleting": head.deleting,
        "created_at": to_micros(head.created_at),
    }
    if head.system is not None:  # its JSON may be written in more than one way
        fields["system"] = head.system.to_dict()
    return _digest(fields)


def session_digest(head: Head, entries: Iterable[Entry], keys: Iterable[KeptKey] = ()) -> bytes:
    """Return a digest of a head, its log, and its keys in order."""
    whole = hashlib.sha256(head_digest(head))
    for entry in entries:
        whole.update(_entry_digest(entry))
    for key in keys:
        place = [key.seq, key.end, key.total, to_micros(key.at)]
        whole.update(_digest([key.name, key.digest, *place]))
    return whole.digest()


def record_digest(block: str, record: Record, blob: bytes = b"") -> bytes:
    """Return a digest of a block's record, and of its features as bytes, if it has any."""
    fields = [
        *(block, record.id, record.owner, record.session_id, record.first, record.last),
        *(record.text, record.sources, to_micros(record.created_at), record.metadata),
    ]
    return hashlib.sha256(_digest(fields) + blob).digest()


def _entry_digest(entry: Entry) -> bytes:
    return _digest(
        [
            *(entry.session_id, entry.seq, entry.message.to_dict(), entry.tokens, entry.total),
            *(entry.encoding, to_micros(entry.created_at)),
        ]
    )


def _digest(value: object) -> bytes:
    return hashlib.sha256(_canonical(value).encode()).digest()


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A stored record.

    Attributes:
        block: The block's name.
        record: The record.
        digest: Its checksum.
        blob: Its features as bytes. Empty for a fact.
    """

    block: str
    record: Record
    digest: bytes
    blob: bytes = b""

    @property
    def key(self) -> tuple[str, str]:
        """The key of the record in its set."""
        return self.block, self.record.id


class RecordSet(Protocol):
    """A part of a store's records."""

    def read(self) -> Iterator[StoredRecord]:
        """Return all records, in any order, read in pages."""
        ...

    def put(self, records: Sequence[StoredRecord]) -> None:
        """Store records, in place of those with the same ids."""
        ...

    def remove(self, keys: Collection[tuple[str, str]]) -> None:
        """Remove records. Others may be removed with them."""
        ...


class FactRecords:
    """All facts of a store, except the store's records about itself.

    Args:
        store: The store.
        leaving: Sessions with an unfinished deletion, whose records are left out.
    """

    def __init__(self, store: RecordStore, leaving: Collection[str]) -> None:
        self._store = store
        self._leaving = leaving

    def read(self) -> Iterator[StoredRecord]:
        for block, record in whole(self._store.all_records()):
            if not stays_behind(block, record) and record.session_id not in self._leaving:
                yield StoredRecord(block, record, record_digest(block, record))

    def put(self, records: Sequence[StoredRecord]) -> None:
        by_block: dict[str, list[Record]] = {}
        for stored_record in records:
            by_block.setdefault(stored_record.block, []).append(stored_record.record)
        for block, some in by_block.items():
            self._store.put_records(block, some)

    def remove(self, keys: Collection[tuple[str, str]]) -> None:
        for block, record_id in keys:
            self._store.delete_records(block, record_id=record_id)


class VectorRecords:
    """The vectors of one block."""

    def __init__(self, store: VectorStore, block: str, leaving: Collection[str]) -> None:
        self._store = store
        self._block = block
        self._leaving = leaving

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
            features = features_of([stored_record.blob for stored_record in records])
            self._store.put_vectors(
                self._block, [stored_record.record for stored_record in records], features
            )

    def remove(self, keys: Collection[tuple[str, str]]) -> None:
        """Remove records, with all others of the same owner and session."""
        found = (stored_record.record for stored_record in self.read() if stored_record.key in keys)
        for owner, session_id in {(record.owner, record.session_id) for record in found}:
            self._store.delete_vectors(self._block, owner=owner, session_id=session_id)


_PAGE = 200


def mirror(
    source: RecordSet, target: RecordSet, sums: Sums, removing: Callable[[], None]
) -> Iterator[StoredRecord]:
    """Remove records that only the target has, and write those that it lacks.

    Existing records are not written again, so that an interrupted run resumes. Each other record
    takes eight bytes of memory.

    Yields:
        Each of the source's records.
    """
    there = _Marks(target.read(), _whole)
    if len(there) and _cleared(source, target, removing):
        there = _Marks(target.read(), _whole)  # other records may have been removed too
    for page in _pages(source.read()):
        target.put(there.lacking(page))
        for stored_record in page:
            sums.add(stored_record.block, stored_record.digest)
            yield stored_record


def summed(records: RecordSet, sums: Sums) -> Iterator[StoredRecord]:
    """Add the checksums of a set of records, by block, and yield each record."""
    for stored_record in records.read():
        sums.add(stored_record.block, stored_record.digest)
        yield stored_record


def _cleared(source: RecordSet, target: RecordSet, removing: Callable[[], None]) -> bool:
    """Remove records that only the target has. Return whether there were any."""
    here, found = _Marks(source.read(), _name), False
    for page in _pages(target.read()):
        if extra := here.lacking(page):
            found = True
            removing()
            target.remove([stored_record.key for stored_record in extra])
    return found


class _Marks:
    """A set of records, each stored as a number of eight bytes.

    The numbers are salted per run. Two records with the same number, one case in billions, have
    different numbers in the next run.
    """

    def __init__(
        self, records: Iterable[StoredRecord], key_of: Callable[[StoredRecord], bytes]
    ) -> None:
        import numpy as np

        self._salt = os.urandom(16)
        self._key_of = key_of
        marks = array("Q", map(self._mark, records))
        self._sorted = np.sort(np.frombuffer(marks, np.uint64))

    def __len__(self) -> int:
        return len(self._sorted)

    def lacking(self, page: Sequence[StoredRecord]) -> list[StoredRecord]:
        """Return the records of a page that are not in the set."""
        import numpy as np

        marks = np.fromiter(map(self._mark, page), np.uint64, len(page))
        first, after = (np.searchsorted(self._sorted, marks, side) for side in ("left", "right"))
        return [
            stored_record
            for stored_record, times in zip(page, after - first, strict=True)
            if not times
        ]

    def _mark(self, stored_record: StoredRecord) -> int:
        digest = hashlib.blake2b(self._key_of(stored_record), digest_size=8, key=self._salt)
        return int.from_bytes(digest.digest())


def _whole(stored_record: StoredRecord) -> bytes:
    return stored_record.digest


def _name(stored_record: StoredRecord) -> bytes:
    return "\0".join(stored_record.key).encode("utf-8", "surrogatepass")


def _pages(records: Iterator[StoredRecord]) -> Iterator[list[StoredRecord]]:
    while page := list(islice(records, _PAGE)):
        yield page
