"""The parts of a store that a migration copies: facts, vectors and sessions, with checksums."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from hashlib import sha256
from itertools import chain, islice
from secrets import token_bytes
from typing import Any, Literal

from agent_memory.core.idempotency import KeptKey
from agent_memory.core.records import Entry, Head, Record
from agent_memory.engine.leases import Leases
from agent_memory.engine.paging import LogChanged, all_heads, keys_of, log_pages
from agent_memory.engine.system_records import stays_behind
from agent_memory.engine.transfer.importer import import_transaction
from agent_memory.errors import StoreError
from agent_memory.stores.base import Store
from agent_memory.stores.damage import whole
from agent_memory.stores.kernel.coding import (
    head_document,
    key_document,
    line_of_entry,
    record_document,
)

_MODULUS = 2**256
_DIGEST = 32
_ENTRIES = 50
"""Entries per read. The number is small because entries may contain images."""


def _digest(*values: object) -> bytes:
    return sha256(repr(values).encode()).digest()


def session_digest(head: Head, entries: Iterable[Entry], keys: Iterable[KeptKey] = ()) -> bytes:
    """Return a digest of a session, without the head's `version`, `updated_at` and `metadata`."""
    both = sha256(_digest(head_document(replace(head, version=0)), head.end, head.total))
    documents = (key_document(head.session_id, key) for key in keys)
    for stored in chain(map(line_of_entry, entries), documents):
        both.update(_digest(stored))
    return both.digest()


def record_digest(block: str, record: Record, blob: bytes = b"") -> bytes:
    """Return a digest of a block's record and, for a vector, of its features as bytes."""
    return _digest(record_document(block, record, 0), blob)


@dataclass(slots=True)
class Sums:
    """Counts items by name, and adds up their checksums. The items may come in any order."""

    counts: Counter[str] = field(default_factory=Counter)
    sums: Counter[str] = field(default_factory=Counter)

    def add(self, name: str, digest: bytes) -> None:
        self.counts[name] += 1
        self.sums[name] = (self.sums[name] + int.from_bytes(digest)) % _MODULUS

    def differing(self, other: Sums) -> list[str]:
        """Return the names whose items differ, in alphabetical order."""
        names = self.counts.keys() | other.counts.keys()
        return sorted(name for name in names if self._of(name) != other._of(name))

    def _of(self, name: str) -> tuple[int, int]:
        return self.counts[name], self.sums[name]


@dataclass(frozen=True, slots=True)
class Item:
    """A fact, a vector or a session of a store, with its checksum.

    Attributes:
        name: The name under which a difference of the item is reported.
        id: The block and the record's id, or the session's id.
        value: The record, or the session's head.
        blob: The features of a vector as bytes.
    """

    name: str
    id: tuple[str, ...]
    digest: bytes
    value: Any
    blob: bytes = b""


class Part(ABC):
    """One kind of data of a store. Items may be read in any order."""

    what: Literal["facts", "vectors", "sessions"]
    page = 200  # the number of items that are read and written together

    @abstractmethod
    def read(self) -> Iterator[Item]: ...

    @abstractmethod
    def put(self, items: Sequence[Item]) -> None: ...

    @abstractmethod
    def remove(self, ids: Collection[tuple[str, ...]]) -> None:
        """Remove the items with these ids, and possibly further items."""

    def ids(self) -> Iterator[tuple[str, ...]]:
        return (item.id for item in self.read())

    def pages(self, sums: Sums) -> Iterator[list[Item]]:
        """Read the items, and add their checksums to `sums`."""
        items = self.read()
        while page := list(islice(items, self.page)):
            for item in page:
                sums.add(item.name, item.digest)
            yield page


class Facts(Part):
    """A store's records without vectors, except records about the store itself.

    Records of the sessions in `leaving`, which are being deleted, are left out.
    """

    what = "facts"

    def __init__(self, store: Store, leaving: Collection[str]) -> None:
        self._store, self._leaving = store, leaving

    def read(self) -> Iterator[Item]:
        for block, record in whole(self._store.all_records()):
            if not stays_behind(block, record) and record.session_id not in self._leaving:
                digest = record_digest(block, record)
                yield Item(f"facts of {block!r}", (block, record.id), digest, record)

    def put(self, items: Sequence[Item]) -> None:
        by_block: dict[str, list[Record]] = {}
        for item in items:
            by_block.setdefault(item.id[0], []).append(item.value)
        for block, some in by_block.items():
            self._store.put_records(block, some)

    def remove(self, ids: Collection[tuple[str, ...]]) -> None:
        for block, record_id in ids:
            self._store.delete_records(block, record_id=record_id)


class Vectors(Part):
    """The vectors of one block, except vectors of the sessions in `leaving`."""

    what = "vectors"

    def __init__(self, store: Store, leaving: Collection[str], block: str) -> None:
        self._store, self._leaving, self._block = store, leaving, block

    def read(self) -> Iterator[Item]:
        from agent_memory.retrieval.segments import rounded
        from agent_memory.stores.feature_bytes import blobs_of

        block = self._block
        for records, features in whole(self._store.all_vectors(block)):
            blobs, alike = blobs_of(records, features), blobs_of(records, rounded(features))
            for record, blob, same in zip(records, blobs, alike, strict=True):
                if record.session_id not in self._leaving:
                    digest = record_digest(block, record, same)
                    yield Item(f"vectors of {block!r}", (block, record.id), digest, record, blob)

    def put(self, items: Sequence[Item]) -> None:
        from agent_memory.stores.feature_bytes import features_of

        if items:
            features = features_of([item.blob for item in items])
            self._store.put_vectors(self._block, [item.value for item in items], features)

    def remove(self, ids: Collection[tuple[str, ...]]) -> None:
        """Remove the vectors with these ids, and all vectors of the same owners and sessions."""
        records = (item.value for item in self.read() if item.id in ids)
        for owner, session_id in {(record.owner, record.session_id) for record in records}:
            self._store.delete_vectors(self._block, owner=owner, session_id=session_id)


class Sessions(Part):
    """The sessions of a store, each with its log and keys. `put` copies logs from `source`.

    A session with an unfinished deletion is copied without messages and stays marked as deleted. A
    worker on the target then finishes the deletion, also in blocks' own databases.
    """

    what = "sessions"
    page = 1

    def __init__(self, store: Store, source: Store) -> None:
        self._store, self._source, self._leases = store, source, Leases(store)

    def read(self) -> Iterator[Item]:
        for head in carried_heads(self._store):
            try:
                log = chain.from_iterable(log_pages(self._store, head, _ENTRIES))
                digest = session_digest(head, log, keys_of(self._store, head))
            except LogChanged:
                digest = token_bytes(_DIGEST)  # equals no other digest
            yield Item(f"session {head.session_id!r}", (head.session_id,), digest, head)

    def ids(self) -> Iterator[tuple[str, ...]]:
        return ((head.session_id,) for head in all_heads(self._store))

    def put(self, items: Sequence[Item]) -> None:
        for item in items:
            head = item.value
            with suppress(LogChanged):  # the comparison finds the difference
                self._store.delete(head.session_id)  # an earlier or a partial copy
                if not self._copied(head):
                    raise StoreError(
                        f"Session {head.session_id!r} was created in the target by another process "
                        "during the migration. Stop the processes that use the target, then repeat "
                        "the call."
                    )

    def remove(self, ids: Collection[tuple[str, ...]]) -> None:
        for (session_id,) in ids:
            self._store.delete(session_id)

    def _copied(self, head: Head) -> bool:
        """Copy a session. Return False if the target already has a session with this id."""
        log = log_pages(self._source, head, _ENTRIES)
        first = next(log, [])
        keys = keys_of(self._source, head)
        if not first or first[-1].seq == head.end:
            if self._store.rewrite(replace(head, version=0), head.expired, first) is None:
                return False
            self._store.put_keys(head.session_id, keys)
            return True
        with import_transaction(self._store, self._leases, head, first) as transaction:
            if transaction is None:
                return False
            for page in log:
                transaction.add(page)
            self._store.put_keys(head.session_id, keys, lease=transaction.lease)
            transaction.show(head)
            return True


def parts_of(store: Store, source: Store, blocks: Iterable[str]) -> list[Part]:
    """Return the parts of a store that belong to a migration from `source`.

    Records come before the sessions they derive from, so that no session in the target lacks its
    records. Records of sessions that the source is deleting are left out.
    """
    leaving = {head.session_id for head in all_heads(source) if head.deleting}
    vectors = (Vectors(store, leaving, block) for block in blocks)
    return [Facts(store, leaving), *vectors, Sessions(store, source)]


def mirror(source: Part, target: Part, sums: Sums) -> Iterator[int]:
    """Make the target's items equal to the source's. Yield the number of items of each page.

    Equal items are not written again, so a repeated call resumes an interrupted call. Items are
    compared by Python's hashes. Very rarely, two different items have the same hash. The next
    process then finds the difference, because its hashes have another salt.
    """
    there = _hashes(target)
    if there and (extra := there.keys() - set(map(hash, source.ids()))):
        target.remove({each for each in target.ids() if hash(each) in extra})
        there = _hashes(target)  # `remove` may have removed more items
    for page in source.pages(sums):
        target.put([item for item in page if there.get(hash(item.id)) != hash(item.digest)])
        yield len(page)


def _hashes(part: Part) -> dict[int, int]:
    return {hash(item.id): hash(item.digest) for item in part.read()}


def carried_heads(store: Store) -> Iterator[Head]:
    """Yield the heads to copy. If a session is being deleted, the copy has no messages."""
    for head in whole(all_heads(store)):
        if head.deleting:
            marked = Head(head.session_id, head.user_id, created_at=head.created_at)
            yield replace(marked, cursors=head.cursors, deleting=True)
        else:
            yield head
