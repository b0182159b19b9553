"""The vectors of a `MongoDBStore`: records one by one, what they are found by in segments."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from agent_memory.core.records import Hit, Lease, Record
from agent_memory.stores.catalogs import grouped
from agent_memory.stores.damage import undamaged
from agent_memory.stores.indexes import CatalogUnreadable, Indexes, search
from agent_memory.stores.mongodb.collections import Collections
from agent_memory.stores.mongodb.commits import Commits, Write
from agent_memory.stores.mongodb.connection import Deployment
from agent_memory.stores.mongodb.documents import key_of
from agent_memory.stores.mongodb.records import (
    Doc,
    MongoDBRecords,
    documents_of,
    matching,
    record_from,
)
from agent_memory.stores.mongodb.scopes import OwnersDocuments, Scopes
from agent_memory.stores.seals import UNSEALED, SegmentSeals
from agent_memory.stores.walking import Walk

if TYPE_CHECKING:
    from agent_memory.retrieval.features import Features
    from agent_memory.retrieval.query import Query

_PAGE = 200
_AT_ONCE = 1_000


class MongoDBVectors(MongoDBRecords):
    """Facts and vectors in MongoDB."""

    def __init__(self, deployment: Deployment, namespace: str) -> None:
        super().__init__(deployment, namespace)
        self._vectors = deployment.table("agent_memory_vectors")
        self._vector_writes = Commits(namespace, self._sessions, self._vectors)
        collections = deployment.table("agent_memory_collections")
        self._collections = Collections(namespace, collections, self._vectors)
        self._indexes = Indexes()
        self._seals = UNSEALED

    def seal_segments(self, seals: SegmentSeals) -> None:
        self._seals = seals

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
        key = self._collections.to_write(block, features)
        groups = grouped(records, features)

        def stage(write: Write) -> bool:
            scopes = self._scopes(write, block, groups)
            docs: list[Doc] = []
            for owner, (some, _) in groups.items():
                first = scopes.catalog(owner).next
                docs += [{**doc, "at": at} for at, doc in enumerate(documents_of(key, some), first)]
            self._vector_writes.put(write, docs)
            gone = scopes.removed()
            for owner in {**groups, **gone}:
                _, segments = groups.get(owner, ([], []))
                scopes.change(owner, gone.get(owner, {}), segments)
            return True

        self._vector_writes.write(key, lease, stage)
        self._collections.sweep(block, key)

    def _scopes(self, write: Write, block: str, owners: Iterable[str]) -> Scopes:
        writes = self._vector_writes
        return Scopes(self._vectors, writes, write, block, owners, self._seals)

    def _owned(self, block: str, key: str, owner: str) -> OwnersDocuments:
        seals = block, self._seals
        return OwnersDocuments(self._vectors, self._vector_writes, key, owner, seals)

    def search_vectors(self, block: str, owner: str, query: Query, limit: int) -> list[Hit]:
        from agent_memory.retrieval.index import SegmentIndex

        for known in (True, False):
            key = self._collections.to_read(block, known=known)
            if key is None:
                break

            def read(ids: Sequence[str], key: str = key) -> dict[str, Record]:
                return {one.id: one for _, one in self._by_ids(block, key, owner, ids)}

            of, source = (block, owner), self._owned(block, key, owner)
            try:
                index = self._indexes.follow(of, source, read, self._seals)
            except CatalogUnreadable:
                self._rebuild_catalog(block, key, owner)
                index = self._indexes.follow(of, source, read, self._seals)
            if len(index) or not known:  # else nothing is the owner's, or the block was cleared
                return search(block, index, query, limit, read)
        return search(block, SegmentIndex(0), query, limit, lambda ids: {})

    def _by_ids(
        self, block: str, key: str, owner: str, ids: Sequence[str]
    ) -> list[tuple[int, Record]]:
        """An owner's records by id, those that there are, each with its number."""
        docs = [
            doc
            for at in range(0, len(ids), _AT_ONCE)
            for doc in self._vectors.all(
                {
                    "_id": {"$in": [key_of(key, name) for name in ids[at : at + _AT_ONCE]]},
                    "live": 1,
                },
                fields={"next": 0},
            )
            if doc["owner"] == owner
        ]
        return undamaged(docs, lambda doc: (doc["at"], record_from(doc, "vector", block)))

    def delete_vectors(
        self,
        block: str,
        *,
        owner: str | None = None,
        session_id: str | None = None,
        after: int = 0,
        lease: Lease | None = None,
    ) -> None:
        which = matching(after, owner=owner, session_id=session_id)
        key = self._collections.to_read(block, known=False)
        if key is None:
            self._vector_writes.guard(lease)
            return

        def stage(write: Write) -> bool:
            self._vector_writes.settle(key)
            owners = self._vectors.distinct("owner", {"block": key, "live": 1, **which})
            if not owners:
                return False
            scopes = self._scopes(write, block, owners)
            self._vector_writes.remove(write, which)
            for each, numbers in scopes.removed().items():
                scopes.change(each, numbers)
            scopes.finish()
            return True

        self._vector_writes.write(key, lease, stage)

    def clear_vectors(self, block: str) -> None:
        self._collections.clear(block)

    def vector_blocks(self) -> dict[str, tuple[int, str]]:
        announced = {block: self._collections.announced(block) for block in self._blocks.names()}
        return {block: known for block, known in announced.items() if known is not None}

    def all_vectors(
        self, block: str, *, session_id: str | None = None
    ) -> Iterator[tuple[list[Record], Features]]:
        key = self._collections.to_read(block, known=False)
        if key is None:
            return
        self._vector_writes.settle(key)
        which: Doc = {"block": key, "live": 1}
        if session_id is not None:
            which["session_id"] = session_id
        for owner in sorted(self._vectors.distinct("owner", which)):
            source = self._owned(block, key, owner)
            docs = self._vectors.all({**which, "owner": owner}, fields={"id": 1, "at": 1})
            ids = [doc["id"] for doc in sorted(docs, key=lambda doc: int(doc["at"]))]
            walk = Walk(block, owner, source, partial(self._by_ids, block, key, owner))
            for at in range(0, len(ids), _PAGE):
                yield from walk.page(ids[at : at + _PAGE])

    def _rebuild_catalog(self, block: str, key: str, owner: str) -> None:
        """Write a catalog anew that cannot be read."""

        def stage(write: Write) -> bool:
            scopes = self._scopes(write, block, [owner])
            scopes.write(owner, scopes.catalog(owner), {}, [])
            return True

        self._vector_writes.write(key, None, stage)

    def _finish_writes(self, session: Doc) -> None:
        for name in session["ops"]:
            self._vector_writes.put_in_place(name)
        super()._finish_writes(session)
