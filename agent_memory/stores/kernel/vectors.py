"""`KernelStore`: the methods of a store for facts and vectors, built on `Kernel`.

A record is a document. Its search features are in a segment, as `catalogs` describes.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from agent_memory.core.messages import compact_json
from agent_memory.core.records import Head, Hit, Lease, Record, Scope
from agent_memory.errors import DimensionMismatch, StoreUnavailable
from agent_memory.stores.damage import undamaged_records
from agent_memory.stores.kernel import contract as k
from agent_memory.stores.kernel.catalogs import Owned, catalog_of, changed, grouped
from agent_memory.stores.kernel.coding import mismatch, record_document, record_from, stamp_of
from agent_memory.stores.kernel.indexes import CatalogUnreadable, Indexes, search, walked
from agent_memory.stores.kernel.rules import selects
from agent_memory.stores.kernel.sessions import TRIES, SessionStore, held

if TYPE_CHECKING:
    from agent_memory.retrieval.features import Features
    from agent_memory.retrieval.index import Segment
    from agent_memory.retrieval.query import Query


class StoredBlocks(NamedTuple):
    """The names of the blocks with stored facts, and of the blocks with stored vectors."""

    facts: Collection[str]
    vectors: Collection[str]


class RecordStore(SessionStore):
    """A store of short texts that blocks derive and list, such as extracted facts."""

    def put_records(
        self,
        block: str,
        records: Sequence[Record],
        *,
        replacing: tuple[str, int, int] | None = None,
        lease: Lease | None = None,
    ) -> None:
        """Insert or overwrite records by id, in one transaction.

        Args:
            replacing: `(session_id, first, last)`, a range of entries. The block's records that
                derive from these entries are deleted first, so that a repeated extraction leaves no
                duplicates.
            lease: Write only while this lease is held.

        Raises:
            LeaseLost: The lease is no longer held; nothing was written.
        """
        name, writes = f"{k.FACT}{block}", list[k.Write]()
        if replacing is not None:
            session, first, last = replacing
            overlap = k.Scan(name, session=session, first_below=last + 1, last_above=first - 1)
            writes.append(k.DeleteWhere(overlap))
        unique = {record.id: record for record in records}.values()
        writes += [k.Put(record_document(name, record, record.last)) for record in unique]
        self._write(lease, k.Batch(held(lease), writes))

    def swap_record(self, block: str, record: Record, last: int | None) -> bool:
        """Compare-and-swap: write a record if the stored record of this id still has this `last`.

        Only one of several concurrent writers succeeds, even in different processes.

        Args:
            record: The record to store, with another `last`.
            last: The `last` of the stored record; None if there is none.

        Returns:
            Whether the record was written. If the connection broke during the call, False can
            also be returned for a written record.
        """
        at = k.DocId(f"{k.FACT}{block}", record.id)
        condition: k.Condition = k.Missing(at) if last is None else k.VersionIs(at, last)
        put = k.Put(record_document(at.collection, record, record.last))
        return self._kernel.commit(k.Batch([condition], [put])).done

    def records(self, block: str, owner: str) -> list[Record]:
        """Return all records of one owner, oldest first (by created_at, then id)."""
        docs = self._kernel.scan(k.Scan(f"{k.FACT}{block}", owner))
        records = undamaged_records(docs, record_from)
        return sorted(records, key=lambda record: (record.created_at, record.id))

    def record(self, block: str, record_id: str) -> Record | None:
        """Return a record by its id; None if it does not exist."""
        (document,) = self._kernel.documents([k.DocId(f"{k.FACT}{block}", record_id)])
        return None if document is None else record_from(document)

    def owners(self, block: str, beginning: str) -> list[str]:
        """Return the record owners of a block that start with `beginning`, in code point order."""
        return self._kernel.owners(f"{k.FACT}{block}", beginning)

    def all_records(self) -> Iterator[tuple[str, Record]]:
        """Yield each record with the name of its block, in no particular order.

        Records that are written during the iteration may be missing.
        """
        for name in self._kernel.collections(k.FACT):
            block = name.removeprefix(k.FACT)
            for page in self._pages(k.Scan(name)):
                yield from ((block, record) for record in undamaged_records(page, record_from))

    def delete_records(
        self,
        block: str,
        *,
        record_id: str | None = None,
        owner: str | None = None,
        session_id: str | None = None,
        after: int = 0,
        lease: Lease | None = None,
    ) -> None:
        """Delete the records that match all arguments. `after` matches each higher `last`.

        At least one of `record_id`, `owner` and `session_id` is required.

        Raises:
            LeaseLost: The lease is no longer held; nothing was deleted.
        """
        if record_id is None and owner is None and session_id is None:
            raise ValueError("Name an owner, a session or a record.")
        scan = k.Scan(f"{k.FACT}{block}", owner, session_id, last_above=after or None)
        writes: list[k.Write] = [k.DeleteWhere(scan)]
        if record_id is not None:
            at = k.DocId(scan.collection, record_id)
            writes = [k.Delete([at])]
            if scan != k.Scan(scan.collection):
                (document,) = self._kernel.documents([at], bodies=False)
                writes = writes if document and selects(scan, document) else []
        self._write(lease, k.Batch(held(lease), writes))


class KernelStore(RecordStore):
    """A store of sessions, facts and vectors in the database of a kernel."""

    def __init__(self, kernel: k.Kernel) -> None:
        super().__init__(kernel)
        self._opened: dict[str, tuple[int, str]] = {}
        self._indexes = Indexes()

    def open_vectors(self, block: str, dimension: int, model: str) -> None:
        embedding = (dimension, model)
        self._announce(block, embedding)
        self._opened[block] = embedding

    def _announce(self, block: str, embedding: tuple[int, str]) -> None:
        """Register a block's embedding. Raise `DimensionMismatch` if it has another embedding."""
        at = k.DocId(k.BLOCKS, block)
        wanted = embedding_document(block, embedding)
        stored = self._kernel.documents([at])[0]
        if stored is None:  # otherwise nothing is written, so that a reader waits for no writer
            outcome = self._kernel.commit(k.Batch([k.Missing(at)], [k.Put(wanted)]))
            stored = wanted if outcome.done else outcome.documents[at] or wanted
        if stored.version != wanted.version:
            raise DimensionMismatch(mismatch(block, embedding_of(stored), embedding))

    def put_vectors(
        self,
        block: str,
        records: Sequence[Record],
        features: Features,
        *,
        lease: Lease | None = None,
    ) -> None:
        if not records:
            return
        embedding = self._opened.get(block)
        if embedding is None or embedding[0] != features.dimension:
            stored = embedding or (0, "no embedder")
            raise DimensionMismatch(mismatch(block, stored, (features.dimension, "unnamed")))
        groups = grouped(records, features)
        name = f"{k.VECTOR}{block}"
        ids = [k.DocId(name, record.id) for some, _ in groups.values() for record in some]
        announced = k.VersionIs(k.DocId(k.BLOCKS, block), _version(embedding))
        for _ in range(TRIES):
            before = [document for document in self._kernel.documents(ids) if document is not None]
            if self._change(block, before, groups, [*held(lease), announced], lease):
                return
            self._announce(block, embedding)
        raise _busy(block)

    def _change(
        self,
        block: str,
        gone: Sequence[k.Document],
        groups: Mapping[str, tuple[list[Record], list[Segment]]],
        conditions: Sequence[k.Condition],
        lease: Lease | None,
    ) -> bool:
        """Delete records and add others. Return False, without any change, if a condition fails."""
        every, writes = self._changes(block, gone, groups)
        return self._write(lease, k.Batch([*conditions, *every], writes)).done

    def _changes(
        self,
        block: str,
        gone: Sequence[k.Document],
        groups: Mapping[str, tuple[list[Record], list[Segment]]],
    ) -> tuple[list[k.Condition], list[k.Write]]:
        name, removed = f"{k.VECTOR}{block}", {document.id for document in gone}
        numbers: dict[str, dict[int, str]] = {}
        for document in gone:
            numbers.setdefault(document.owner, {})[document.version] = document.id
        every: list[k.Condition] = [
            k.Missing(k.DocId(name, record.id))
            for some, _ in groups.values()
            for record in some
            if record.id not in removed
        ]
        writes: list[k.Write] = [k.Delete([document.key for document in gone])] if gone else []
        for owner in sorted({**groups, **numbers}):
            owned = Owned(self._kernel, block, owner)
            stored = owned.catalog()
            every.append(
                k.Missing(owned.at) if stored is None else k.VersionIs(owned.at, stored.version)
            )
            some, added = groups.get(owner, ([], []))
            if not some and self._is_all(name, owner, removed):
                writes += owned.forget()  # the segments may be damaged, and are not read
                continue
            catalog = catalog_of(owned, stored)
            writes += [
                k.Put(record_document(name, record, at))
                for at, record in enumerate(some, catalog.next)
            ]
            change = changed(catalog, numbers.get(owner, {}), added, owned.segments)
            writes += owned.change(change)
        return every, writes

    def _is_all(self, name: str, owner: str, ids: set[str]) -> bool:
        """Return whether an owner has no records except those with these ids."""
        documents = self._kernel.scan(k.Scan(name, owner, limit=len(ids) + 1, names=True))
        return all(document.id in ids for document in documents)

    def search_vectors(self, block: str, owner: str, query: Query, limit: int) -> list[Hit]:
        owned = Owned(self._kernel, block, owner)

        def read(ids: Sequence[str]) -> dict[str, Record]:
            return {record.id: record for _, record in owned.records(ids)}

        try:
            index = self._indexes.follow((block, owner), owned, read)
        except CatalogUnreadable:  # an empty write makes the store rebuild the catalog
            self._change(block, (), {owner: ([], [])}, [], None)
            index = self._indexes.follow((block, owner), owned, read)
        return search(block, index, query, limit, read)

    def delete_vectors(
        self,
        block: str,
        *,
        owner: str | None = None,
        session_id: str | None = None,
        after: int = 0,
        lease: Lease | None = None,
    ) -> None:
        if owner is None and session_id is None:
            raise ValueError("Name an owner or a session.")
        name = f"{k.VECTOR}{block}"
        scan = k.Scan(name, owner, session_id, last_above=after or None, bodies=False)
        for _ in range(TRIES):
            gone = self._kernel.scan(scan)
            if not gone:
                self._write(lease, k.Batch(held(lease), []))
                return
            if self._change(block, gone, {}, held(lease), lease):
                return
        raise _busy(block)

    def blocks(self) -> StoredBlocks:
        """Return the names of all blocks with records or vectors."""
        names = self._kernel.collections("")
        facts, vectors = (
            [name.removeprefix(kind) for name in names if name.startswith(kind)]
            for kind in (k.FACT, k.VECTOR)
        )
        return StoredBlocks(facts, vectors)

    def delete_whole(
        self,
        heads: Sequence[Head],
        blocks: StoredBlocks,
        *,
        owners: Collection[str] = (),
        locks: Collection[str] = (),
        leaving: Mapping[str, Sequence[Record]] | None = None,
    ) -> bool:
        """Delete sessions and the data of owners in one transaction, with records and vectors.

        Args:
            heads: The current heads of the sessions.
            blocks: The result of `blocks()`.
            owners: Owners whose records and vectors of all sessions are deleted.
            locks: Names of locks. Nothing is deleted while one of them is held.
            leaving: Records to store in the same transaction, by block.

        Returns:
            Whether the data was deleted. False, without any change, if a head or the vectors were
            changed meanwhile, or if a session or a lock is held.
        """
        ids = [k.head_id(head.session_id) for head in heads]
        every: list[k.Condition] = [k.Free(at, "") for at in ids]
        every += [k.VersionIs(at, stamp_of(head)) for at, head in zip(ids, heads, strict=True)]
        writes: list[k.Write] = []
        for lock in [k.DocId(k.LOCK, name) for name in locks]:
            every.append(k.Free(lock, ""))
            if self._kernel.remote:  # this write prevents others from taking the lock meanwhile
                writes += [k.Put(k.Document(*lock)), k.Delete([lock])]
        for block in blocks.vectors:
            for head in heads:
                if Scope(head.user_id, head.session_id).owner in owners:
                    continue  # the session's vectors are deleted with the owner's vectors
                scan = k.Scan(f"{k.VECTOR}{block}", session=head.session_id, bodies=False)
                if gone := [doc for doc in self._kernel.scan(scan) if doc.owner not in owners]:
                    conditions, changes = self._changes(block, gone, {})
                    every += conditions
                    writes += changes
        kinds = (k.VECTOR, k.CATALOG, k.SEGMENT)
        searched = [f"{kind}{block}" for kind in kinds for block in blocks.vectors]
        facts = [f"{k.FACT}{block}" for block in blocks.facts]
        writes += [
            k.DeleteWhere(k.Scan(name, each)) for name in (*facts, *searched) for each in owners
        ]
        writes += [
            k.DeleteWhere(k.Scan(name, session=head.session_id))
            for name in (*facts, k.KEY)
            for head in heads
        ]
        writes += [k.Delete(ids)] if ids else []
        writes += [k.Truncate(head.session_id, 0) for head in heads]
        writes += [
            k.Put(record_document(f"{k.FACT}{block}", record, record.last))
            for block, records in (leaving or {}).items()
            for record in records
        ]
        is_done = self._kernel.commit(k.Batch(every, writes)).done
        for head in heads if is_done else ():
            self._cached.drop(head.session_id)
        return is_done

    def clear_vectors(self, block: str) -> None:
        self._kernel.commit(k.Batch([], cleared(block)))

    def vector_blocks(self) -> dict[str, tuple[int, str]]:
        return {
            document.id: embedding_of(document) for document in self._kernel.scan(k.Scan(k.BLOCKS))
        }

    def all_vectors(
        self, block: str, *, session_id: str | None = None
    ) -> Iterator[tuple[list[Record], Features]]:
        name = f"{k.VECTOR}{block}"
        scans = iter([k.Scan(name, session=session_id, bodies=False)])
        if session_id is None:
            pages = self._pages(k.Scan(f"{k.CATALOG}{block}", names=True))
            scans = (k.Scan(name, catalog.id, bodies=False) for page in pages for catalog in page)
        for scan in scans:
            documents = sorted(self._kernel.scan(scan), key=attrgetter("owner", "version"))
            for owner, group in groupby(documents, attrgetter("owner")):
                ids = [document.id for document in group]
                yield from walked(Owned(self._kernel, block, owner), ids)


def cleared(block: str) -> list[k.Write]:
    """Return the writes that delete a block's vectors and their registration."""
    kinds = (k.VECTOR, k.CATALOG, k.SEGMENT)
    every = [k.DeleteWhere(k.Scan(f"{kind}{block}")) for kind in kinds]
    return [k.Delete([k.DocId(k.BLOCKS, block)]), *every]


def embedding_document(block: str, embedding: tuple[int, str]) -> k.Document:
    """Return the document that registers the dimension and the model of a block's vectors."""
    body = compact_json(embedding)
    return k.Document(k.BLOCKS, block, version=_version(embedding), body=body)


def _version(embedding: tuple[int, str]) -> int:
    return crc32(compact_json(embedding).encode()) + 1


def embedding_of(document: k.Document) -> tuple[int, str]:
    dimension, model = json.loads(document.body)
    return int(dimension), str(model)


def _busy(block: str) -> StoreUnavailable:
    return StoreUnavailable(
        f"Other writers kept changing the records of a user in block {block!r}. Try again."
    )
