"""Which vectors a block has in MongoDB, and an owner's vectors as an index."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from agent_memory.errors import DimensionMismatch
from agent_memory.stores.coding import mismatch
from agent_memory.stores.indexes import Changed, Indexes
from agent_memory.stores.mongodb.commits import Commits, Write
from agent_memory.stores.mongodb.connection import Table
from agent_memory.stores.mongodb.documents import key_of, token

if TYPE_CHECKING:
    from agent_memory.retrieval.features import Features
    from agent_memory.retrieval.index import SegmentIndex

Doc = dict[str, Any]


class Collections:
    """The blocks' vectors: of which dimension and model, and under which key.

    A block whose vectors were cleared begins with a new key. So what a worker with the former
    embedder may still write is not found under it.

    Args:
        namespace: Of the blocks.
        collections: What was announced.
        vectors: The vectors.
        scopes: Versions of their owners' vectors.
    """

    def __init__(self, namespace: str, collections: Table, vectors: Table, scopes: Table) -> None:
        self._namespace = namespace
        self._collections = collections
        self._vectors = vectors
        self._scopes = scopes
        self._opened: dict[str, tuple[int, str]] = {}
        self._keys: dict[str, str] = {}

    def open(self, block: str, given: tuple[int, str]) -> None:
        """See `VectorStore.open_vectors`."""
        self._announce(block, given)
        self._opened[block] = given

    def to_write(self, block: str, features: Features) -> str:
        """The key under which these vectors are to be kept.

        Raises:
            DimensionMismatch: The block is not open, or for others.
        """
        from agent_memory.stores.blobs import checked

        return self._announce(block, checked(block, self._opened.get(block), features))

    def to_read(self, block: str, *, known: bool) -> str | None:
        """The key under which the block's vectors are; `known`: as it was seen last, if it was."""
        if known and block in self._keys:
            return self._keys[block]
        stored = self._stored(block)
        if stored is None:
            self._keys.pop(block, None)
            return None
        self._keys[block] = stored["key"]
        return self._keys[block]

    def announced(self, block: str) -> tuple[int, str] | None:
        """Dimension and model of the block's vectors, if it has any."""
        stored = self._stored(block)
        return None if stored is None else (stored["dimension"], stored["model"])

    def sweep(self, block: str, key: str) -> None:
        """Remove what was just written, if the block was cleared meanwhile."""
        stored = self._stored(block)
        if stored is None or stored["key"] != key:
            self._drop(key)

    def clear(self, block: str) -> None:
        """See `VectorStore.clear_vectors`."""
        which = {"_id": key_of(self._namespace, block)}
        stored = self._collections.swap(which, {"$set": {"cleared": 1}})
        if stored is not None:
            self._finish(stored)

    def _announce(self, block: str, given: tuple[int, str]) -> str:
        place = key_of(self._namespace, block)
        while True:
            stored = self._stored(block)
            if stored is not None:
                found = (stored["dimension"], stored["model"])
                if found != given:
                    raise DimensionMismatch(mismatch(block, found, given))
                self._keys[block] = stored["key"]
                return self._keys[block]
            key = f"{place}.{token()}"
            new = {"_id": place, "key": key, "dimension": given[0], "model": given[1]}
            self._collections.insert([{**new, "cleared": 0}])

    def _stored(self, block: str) -> Doc | None:
        stored = self._collections.one({"_id": key_of(self._namespace, block)})
        if stored is not None and stored["cleared"]:
            self._finish(stored)
            return None
        return stored

    def _finish(self, cleared: Doc) -> None:
        self._drop(cleared["key"])
        self._collections.delete({"_id": cleared["_id"], "key": cleared["key"]})

    def _drop(self, key: str) -> None:
        self._vectors.delete_all({"block": key})
        self._vectors.delete_all({"next.block": key})
        self._scopes.delete_all({"block": key})


class OwnersIndexes:
    """Each owner's vectors as an index.

    Args:
        vectors: The vectors.
        scopes: A version for each block and owner, changed with each write.
        writes: Commits the writes.
    """

    def __init__(self, vectors: Table, scopes: Table, writes: Commits) -> None:
        self._vectors = vectors
        self._scopes = scopes
        self._writes = writes
        self._indexes = Indexes()

    def load(self, key: str, owner: str) -> SegmentIndex | None:
        """The index of an owner's vectors; None where none was ever written."""
        scope = self._scopes.one({"_id": key_of(key, owner)})
        if scope is None:
            return None
        found = self._indexes.get((key, owner), scope["version"])
        if found is not None:
            return found
        settled = self._writes.settle(key)
        which = {"block": key, "owner": owner, "live": 1}
        docs = self._vectors.all(which, fields={"id": 1, "vector": 1, "next.op": 1})
        # a write under way changed the version before: what it is yet to change is not kept
        still = settled and not any("next" in doc for doc in docs)
        version = scope["version"] if still else None
        ids, blobs = [doc["id"] for doc in docs], [doc["vector"] for doc in docs]
        return self._indexes.load((key, owner), version, ids, blobs)

    def documents(self, key: str, ids: Sequence[str]) -> list[Doc]:
        """The documents of these records, without their vectors."""
        return [
            doc
            for at in range(0, len(ids), 1000)
            for doc in self._vectors.all(
                {"_id": {"$in": [key_of(key, name) for name in ids[at : at + 1000]]}, "live": 1},
                fields={"vector": 0, "next": 0},
            )
        ]

    def renew(self, write: Write) -> Changed:
        """Change the versions of all whose vectors a write has tagged, before it is committed."""
        owners: set[str] = set()
        for doc in self._writes.tagged(write.name):
            owners.add(doc["next"].get("record", doc)["owner"])
            owners.add(doc.get("owner", ""))
        return {owner: self._renew(write.block, owner) for owner in sorted(owners - {""})}

    def extend(self, key: str, changed: Changed, ids: Sequence[str], features: Features) -> None:
        """Take in what was just committed and put in place.

        What is kept under a version is whole: writes that had changed the version by then had come
        to an end, and those that change it later are put in place later. So it is what was there
        when this write changed the version, and until another does, this write's records are all
        that came to it.
        """
        self._indexes.extend(key, changed, ids, features)

    def _renew(self, block: str, owner: str) -> tuple[int | None, int]:
        version = 0

        def change() -> Doc:
            nonlocal version
            version = secrets.randbits(62)
            return {"$set": {"block": block, "version": version}}

        before = self._scopes.upsert({"_id": key_of(block, owner)}, change)
        return (None if before is None else before["version"]), version
