"""The facts and vectors of a `MongoDBStore`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal

from agent_memory.core.records import Hit, Lease, Record
from agent_memory.stores.coding import record_body, record_of, to_micros
from agent_memory.stores.damage import undamaged
from agent_memory.stores.indexes import Changed, search
from agent_memory.stores.mongodb.blocks import Blocks
from agent_memory.stores.mongodb.commits import Commits, Write
from agent_memory.stores.mongodb.connection import Deployment, Table
from agent_memory.stores.mongodb.documents import key_of
from agent_memory.stores.mongodb.vectors import Collections, OwnersIndexes

if TYPE_CHECKING:
    from agent_memory.retrieval.features import Features, Query

Doc = dict[str, Any]

_PAGE = 200


class _AnotherCameFirst(Exception):
    """The record is not the one that was to be followed; what was tagged is let go."""


class MongoDBRecords:
    """Facts and vectors in MongoDB."""

    def __init__(self, deployment: Deployment, namespace: str) -> None:
        self._namespace = namespace
        self._sessions = sessions = deployment.table("agent_memory_sessions")
        self._facts = deployment.table("agent_memory_facts")
        self._fact_writes = Commits(namespace, sessions, self._facts)
        self._vectors = deployment.table("agent_memory_vectors")
        self._vector_writes = Commits(namespace, sessions, self._vectors)
        scopes = deployment.table("agent_memory_scopes")
        self._collections = Collections(
            namespace, deployment.table("agent_memory_collections"), self._vectors, scopes
        )
        self._indexes = OwnersIndexes(self._vectors, scopes, self._vector_writes)
        self._blocks = Blocks(namespace, deployment.table("agent_memory_blocks"))

    def put_records(
        self,
        block: str,
        records: Sequence[Record],
        *,
        replacing: tuple[str, int, int] | None = None,
        lease: Lease | None = None,
    ) -> None:
        key = key_of(self._namespace, block)
        docs = _docs(key, records)
        self._blocks.note(block)

        def stage(write: Write) -> bool:
            found = bool(docs)
            self._fact_writes.put(write, docs)
            if replacing is not None:
                sid, first, last = replacing
                span = {"session_id": sid, "first": {"$lte": last}, "last": {"$gte": first}}
                found = self._fact_writes.remove(write, span) or found
            return found

        self._fact_writes.write(key, lease, stage)

    def swap_record(self, block: str, record: Record, last: int | None) -> bool:
        key = key_of(self._namespace, block)
        docs = _docs(key, [record])
        self._blocks.note(block)

        def stage(write: Write) -> bool:
            self._fact_writes.put(write, docs)  # nobody else changes what is tagged
            stored = self._facts.one({"_id": docs[0]["_id"], "live": 1})
            if (None if stored is None else stored["last"]) != last:
                raise _AnotherCameFirst
            return True

        try:
            self._fact_writes.write(key, None, stage)
        except _AnotherCameFirst:
            return False
        return True

    def records(self, block: str, owner: str) -> list[Record]:
        key = key_of(self._namespace, block)
        self._fact_writes.settle(key)
        docs = self._facts.all({"block": key, "owner": owner, "live": 1})
        found = undamaged(docs, lambda doc: _record(doc, "fact", block))
        return sorted(found, key=lambda record: (record.created_at, record.id))

    def record(self, block: str, record_id: str) -> Record | None:
        key = key_of(self._namespace, block)
        self._fact_writes.settle(key)
        doc = self._facts.one({"_id": key_of(key, record_id), "live": 1})
        return None if doc is None else _record(doc, "fact", block)

    def owners(self, block: str, beginning: str) -> list[str]:
        key = key_of(self._namespace, block)
        self._fact_writes.settle(key)
        names = self._facts.distinct(
            "owner", {"block": key, "owner": {"$gte": beginning}, "live": 1}
        )
        return sorted(name for name in names if name.startswith(beginning))

    def all_records(self) -> Iterator[tuple[str, Record]]:
        for block in self._blocks.names():
            key = key_of(self._namespace, block)
            self._fact_writes.settle(key)
            for docs in _pages(self._facts, {"block": key, "live": 1}):
                found = undamaged(docs, partial(_record, kind="fact", block=block))
                yield from ((block, record) for record in found)

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
        key = key_of(self._namespace, block)
        place = None if record_id is None else key_of(key, record_id)
        which = _matching(after, _id=place, owner=owner, session_id=session_id)
        writes = self._fact_writes
        writes.write(key, lease, lambda write: writes.remove(write, which))

    def open_vectors(self, block: str, dimension: int, model: str) -> None:
        self._blocks.note(block)
        self._collections.open(block, (dimension, model))

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
        from agent_memory.stores.blobs import blobs_of

        key = self._collections.to_write(block, features)
        docs = _docs(key, records, blobs_of(records, features))
        changed: Changed = {}

        def stage(write: Write) -> bool:
            nonlocal changed
            self._vector_writes.put(write, docs)
            changed = self._indexes.renew(write)
            return True

        self._vector_writes.write(key, lease, stage)
        self._indexes.extend(key, changed, [record.id for record in records], features)
        self._collections.sweep(block, key)

    def search_vectors(self, block: str, owner: str, query: Query, depth: int) -> list[Hit]:
        key = self._collections.to_read(block, known=True)
        index = None if key is None else self._indexes.load(key, owner)
        if index is None:  # nothing of this owner's, or the block was cleared
            key = self._collections.to_read(block, known=False)
            index = None if key is None else self._indexes.load(key, owner)
        if key is None or index is None:
            from agent_memory.retrieval.index import SegmentIndex

            return search(block, SegmentIndex(0), query, depth, lambda ids: {})

        def read(ids: list[str]) -> dict[str, Record]:
            docs = self._indexes.documents(key, ids)
            own = [doc for doc in docs if doc["owner"] == owner]
            found = undamaged(own, lambda doc: _record(doc, "vector", block))
            return {record.id: record for record in found}

        return search(block, index, query, depth, read)

    def delete_vectors(
        self,
        block: str,
        *,
        owner: str | None = None,
        session_id: str | None = None,
        after: int = 0,
        lease: Lease | None = None,
    ) -> None:
        which = _matching(after, owner=owner, session_id=session_id)
        key = self._collections.to_read(block, known=False)
        if key is None:
            self._vector_writes.guard(lease)
            return

        def stage(write: Write) -> bool:
            found = self._vector_writes.remove(write, which)
            if found:
                self._indexes.renew(write)
            return found

        self._vector_writes.write(key, lease, stage)

    def clear_vectors(self, block: str) -> None:
        self._collections.clear(block)

    def vector_blocks(self) -> dict[str, tuple[int, str]]:
        announced = {block: self._collections.announced(block) for block in self._blocks.names()}
        return {block: known for block, known in announced.items() if known is not None}

    def all_vectors(
        self, block: str, *, session_id: str | None = None
    ) -> Iterator[tuple[list[Record], Features]]:
        from agent_memory.stores.blobs import with_features

        key = self._collections.to_read(block, known=False)
        if key is None:
            return
        self._vector_writes.settle(key)
        which: Doc = {"block": key, "live": 1}
        if session_id is not None:
            which["session_id"] = session_id
        for docs in _pages(self._vectors, which):
            found = undamaged(docs, lambda doc: (_record(doc, "vector", block), doc["vector"]))
            yield from with_features(block, found)

    def _finish_writes(self, session: Doc) -> None:
        """Put in place what was committed under a session's leases."""
        for name in session["ops"]:
            for writes in (self._fact_writes, self._vector_writes):
                writes.put_in_place(name)
            self._sessions.update({"_id": session["_id"]}, {"$unset": {f"ops.{name}": ""}})

    def _guard(self, lease: Lease | None) -> None:
        self._fact_writes.guard(lease)


def _pages(table: Table, which: Doc) -> Iterator[list[Doc]]:
    """The documents that match, some at a time."""
    keys = [doc["_id"] for doc in table.all(which, fields={"_id": 1})]
    for at in range(0, len(keys), _PAGE):
        if docs := table.all({**which, "_id": {"$in": keys[at : at + _PAGE]}}):
            yield docs


def _docs(block: str, records: Sequence[Record], vectors: Sequence[bytes] = ()) -> list[Doc]:
    docs: dict[str, Doc] = {}
    for place, record in enumerate(records):
        docs[record.id] = {
            "_id": key_of(block, record.id),
            "block": block,
            "id": record.id,
            "owner": record.owner,
            "session_id": record.session_id,
            "first": record.first,
            "last": record.last,
            "created_at": to_micros(record.created_at),
            "body": record_body(record),
        }
        if vectors:
            docs[record.id]["vector"] = vectors[place]
    return list(docs.values())


def _record(doc: Doc, kind: Literal["fact", "vector"], block: str) -> Record:
    return record_of(SimpleNamespace(**{**doc, "_id": None}), kind, block)


def _matching(after: int, **conditions: str | None) -> Doc:
    given: Doc = {name: value for name, value in conditions.items() if value is not None}
    if not given:
        raise ValueError("Name an owner, a session or a record.")
    return {**given, "last": {"$gt": after}} if after else given
