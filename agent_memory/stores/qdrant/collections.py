"""Manages the collections of blocks on a Qdrant server.

A block has one collection. The collection's name contains the block's embedding: the dimension, and
a short form of the model.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from agent_memory.stores.qdrant.connection import Connection, Missing, Taken
from agent_memory.stores.qdrant.points import MEANING, WORDS, models

_PLAIN = re.compile(r"[A-Za-z0-9-]+")
_OTHER = re.compile(r"[^A-Za-z0-9]+")
_MOST = 60
_DIGEST = 12
_LINKS = 16
_MODEL = "model"
_CLAIM = "claim"


class Collections:
    """Creates, lists and deletes collections."""

    def __init__(self, connection: Connection, names: Names) -> None:
        self._connection = connection
        self._names = names

    def by_block(self) -> dict[str, list[str]]:
        """Return the collections of each block.

        A block has a collection for its vectors, and a claim while this collection is created.
        """
        with self._connection.reached() as client:
            names = sorted(each.name for each in client.get_collections().collections)
        blocks: dict[str, list[str]] = {}
        for name in names:
            if (block := self._names.block_of(name)) is not None:
                blocks.setdefault(block, []).append(name)
        return blocks

    def current(self) -> dict[str, str]:
        """Return for each block the collection of its vectors."""
        return {
            block: name
            for block, names in self.by_block().items()
            for name in reversed(names)  # the first name remains
            if name != self._names.claim(block)
        }

    def of(self, block: str) -> str | None:
        """Return the collection of a block's vectors. None for a new block."""
        return self.current().get(block)

    def embedding(self, name: str) -> tuple[int, str]:
        """Return the dimension and the model of a collection's vectors.

        A server before 1.16 does not store the model. The model's short form is then returned.
        """
        dimension, slug = embedding(name)
        with self._connection.reached() as client:
            metadata = client.get_collection(name).config.metadata or {}
        return dimension, str(metadata.get(_MODEL, slug))

    def open(self, block: str, dimension: int, model: str) -> str:
        """Return the name of a block's collection, which is created if there is none.

        If several processes open a block with different embeddings, exactly one must win. A
        collection can be created only once. Each process therefore tries to create a claim
        collection, under a common name. The name of the claim's vector shows which embedding won. A
        process with this embedding creates the block's collection, and then deletes the claim. Any
        other process only returns the collection's name.
        """
        name, claim = self._names.vectors(block, dimension, model), self._names.claim(block)
        names = self.by_block().get(block, [])
        if names and claim not in names:
            return name if name in names else names[0]
        tail = name.partition(".")[2]
        with suppress(Taken):
            self._make(claim, {tail: 1})
        with self._connection.reached() as client:
            vectors = client.get_collection(claim).config.params.vectors
        winner = next(iter(vectors)) if isinstance(vectors, dict) else tail
        if winner != tail:
            return claim.replace(f".{_CLAIM}", f".{winner}")
        # the claim may have been created after the block got its collection
        existing = self.of(block)
        if existing in (None, name):
            self._make_whole(name, dimension, model)
        self._drop(claim)
        return existing or name

    def _make_whole(self, name: str, dimension: int, model: str) -> None:
        with suppress(Taken):
            dense = {MEANING: dimension} if dimension else {}
            self._make(name, dense, (WORDS,), {_MODEL: model})
        if self._connection.local:  # payload indexes would only cause a warning
            return
        tenant = models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD, is_tenant=True)
        with self._connection.reached() as client:
            client.create_payload_index(name, "owner", tenant)
            client.create_payload_index(name, "session_id", models.PayloadSchemaType.KEYWORD)
            client.create_payload_index(name, "last", models.PayloadSchemaType.INTEGER)

    def clear(self, block: str) -> None:
        for name in self.by_block().get(block, ()):
            self._drop(name)

    def _drop(self, name: str) -> None:
        with suppress(Missing), self._connection.reached() as client:
            client.delete_collection(name)

    def _make(
        self,
        name: str,
        dense: Mapping[str, int],
        sparse: Sequence[str] = (),
        metadata: dict[str, Any] | None = None,
    ) -> None:
        # Vectors have unit length already. With DOT, the server does not normalize them again.
        vectors = {
            vector: models.VectorParams(size=size, distance=models.Distance.DOT)
            for vector, size in dense.items()
        }
        # A point stores the weights of its words. The server multiplies them by the words' rarity.
        words = {name: models.SparseVectorParams(modifier=models.Modifier.IDF) for name in sparse}
        # Each search is limited to one owner. There is no graph of the whole collection, only a
        # graph for each owner with many records.
        graphs = models.HnswConfigDiff(m=0, payload_m=_LINKS)
        with self._connection.reached() as client:
            client.create_collection(
                name,
                vectors_config=vectors,
                sparse_vectors_config=words or None,
                hnsw_config=graphs,
                metadata=metadata,
            )


class Names:
    """The names of a namespace's collections, unique for each block."""

    def __init__(self, namespace: str) -> None:
        # an underscore ends the part for the namespace, so this part contains no underscore
        short = f"{_OTHER.sub('-', namespace)[:_MOST]}~{_digest(namespace)}"
        self._prefix = f"agent_memory_{namespace if _PLAIN.fullmatch(namespace) else short}_"

    def claim(self, block: str) -> str:
        """Return the collection whose creation decides the embedding of a new block."""
        return f"{self._prefix}{block}.{_CLAIM}"

    def vectors(self, block: str, dimension: int, model: str) -> str:
        slug = _OTHER.sub("-", model)[:_MOST]
        digest = _digest(f"{dimension}\x1f{model}")
        return f"{self._prefix}{block}.{slug}-{dimension}-{digest}"

    def block_of(self, collection: str) -> str | None:
        """Return the block of a collection. None for a collection of another program."""
        block, dot, _ = collection.removeprefix(self._prefix).partition(".")
        return block if dot and collection.startswith(self._prefix) else None


def embedding(collection: str) -> tuple[int, str]:
    """Return the dimension and the short model name from a collection's name."""
    slug, dimension, _ = collection.partition(".")[2].rsplit("-", 2)
    return int(dimension), slug


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST]
