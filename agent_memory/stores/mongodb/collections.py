"""Which vectors a block has in MongoDB."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent_memory.errors import DimensionMismatch
from agent_memory.stores.coding import mismatch
from agent_memory.stores.mongodb.connection import Table
from agent_memory.stores.mongodb.documents import key_of, token
from agent_memory.stores.mongodb.scopes import blocks_of

if TYPE_CHECKING:
    from agent_memory.retrieval.features import Features

Doc = dict[str, Any]


class Collections:
    """The blocks' vectors: of which dimension and model, and under which key.

    A block whose vectors were cleared begins with a new key. So what a worker with the former
    embedder may still write is not found under it.

    Args:
        namespace: Of the blocks.
        collections: What was announced.
        vectors: The vectors.
    """

    def __init__(self, namespace: str, collections: Table, vectors: Table) -> None:
        self._namespace = namespace
        self._collections = collections
        self._vectors = vectors
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
        self._vectors.delete_all({"block": {"$in": blocks_of(key)}})
        self._vectors.delete_all({"next.block": key})
