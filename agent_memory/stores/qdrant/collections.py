"""Manages the collections of blocks on a Qdrant server, and the aliases that lead to them.

A block has a collection for each embedding, that is, for each pair of dimension and model. The
collection's name contains the dimension and a short form of the model. A block has two aliases: one
leads to the active collection, which is searched, and one to the collection that is written to.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from agent_memory.stores.qdrant.connection import Connection, Missing, Taken
from agent_memory.stores.qdrant.points import MEANING, WORDS

_PLAIN = re.compile(r"[A-Za-z0-9-]+")
_OTHER = re.compile(r"[^A-Za-z0-9]+")
_MOST = 60
_DIGEST = 12
_LINKS = 16
_MODEL = "model"


@dataclass(frozen=True, slots=True)
class Roles:
    """The collection of a block that is searched, and the collection that is written to.

    Both are None for a new block. They differ only while the block is rebuilt.
    """

    recalled: str | None
    written: str | None


class Collections:
    """Creates, lists and deletes collections, and sets aliases."""

    def __init__(self, connection: Connection, names: Names) -> None:
        self._connection = connection
        self._names = names

    def roles(self, block: str) -> Roles:
        """Return the collections to which a block's aliases lead."""
        targets = self._targets()
        recalled = targets.get(self._names.recalled(block))
        return Roles(recalled, targets.get(self._names.written(block), recalled))

    def is_written(self, block: str, name: str) -> bool:
        with self._connection.reached() as client:
            aliases = client.get_collection_aliases(name).aliases
        return self._names.written(block) in {alias.alias_name for alias in aliases}

    def in_force(self) -> dict[str, str]:
        blocks = {self._names.in_force(alias): name for alias, name in self._targets().items()}
        return {block: name for block, name in blocks.items() if block is not None}

    def _targets(self) -> dict[str, str]:
        with self._connection.reached() as client:
            return {each.alias_name: each.collection_name for each in client.get_aliases().aliases}

    def embedding(self, name: str) -> tuple[int, str]:
        """Return the dimension and the model of a collection's vectors.

        A server before 1.16 does not store the model. The model's short form is then returned.
        """
        dimension, slug = embedding(name)
        with self._connection.reached() as client:
            metadata = client.get_collection(name).config.metadata or {}
        return dimension, str(metadata.get(_MODEL, slug))

    def of(self, block: str) -> list[str]:
        """Return all collections of a block's vectors, also those of abandoned rebuilds."""
        with self._connection.reached() as client:
            collections = client.get_collections().collections
        return sorted(each.name for each in collections if self._names.is_of(block, each.name))

    def begin(self, block: str, name: str, dimension: int, model: str) -> str:
        """Give a new block its first collection, and return the collection's name.

        If several processes do this with different embeddings, exactly one embedding must win. An
        alias cannot decide that, because a later alias overwrites an earlier one. A collection, in
        contrast, can be created only once. Each process therefore tries to create a claim
        collection, under a common name. The name of the claim's vector shows which embedding won. A
        process with this embedding creates the block's collection. Any other process only returns
        the collection's name.
        """
        claim = self._names.claim(block)
        tail = name.partition(".")[2]
        with suppress(Taken):
            self._make(claim, {tail: 1})
        with self._connection.reached() as client:
            vectors = client.get_collection(claim).config.params.vectors
        winner = next(iter(vectors)) if isinstance(vectors, dict) else tail
        if winner != tail:
            return f"{self._names.recalled(block)}.{winner}"
        # the claim may have been created after the block got its collection
        existing = self.roles(block).recalled
        if existing is None:
            self.make(name, dimension, model)
            self.point(name, self._names.recalled(block), self._names.written(block))
        self.drop(claim)
        return existing or name

    def make(self, name: str, dimension: int, model: str) -> None:
        """Create a collection and its indexes, unless they exist."""
        from qdrant_client import models

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

    def drop(self, *names: str) -> None:
        for name in names:
            with suppress(Missing), self._connection.reached() as client:
                client.delete_collection(name)

    def _make(
        self,
        name: str,
        dense: Mapping[str, int],
        sparse: Sequence[str] = (),
        metadata: dict[str, Any] | None = None,
    ) -> None:
        from qdrant_client import models

        # Vectors have unit length already. With DOT, the server does not normalize them again.
        vectors = {
            vector: models.VectorParams(size=size, distance=models.Distance.DOT)
            for vector, size in dense.items()
        }
        # A point stores the weights of its words. The server multiplies them by the words' rarity.
        words = {name: models.SparseVectorParams(modifier=models.Modifier.IDF) for name in sparse}
        # Each search is limited to one owner. There is no graph of the whole collection, only one
        # for each owner with many records.
        graphs = models.HnswConfigDiff(m=0, payload_m=_LINKS)
        with self._connection.reached() as client:
            client.create_collection(
                name,
                vectors_config=vectors,
                sparse_vectors_config=words or None,
                hnsw_config=graphs,
                metadata=metadata,
            )

    def point(self, name: str, *aliases: str) -> None:
        """Let aliases lead to a collection."""
        from qdrant_client import models

        with self._connection.reached() as client:
            client.update_collection_aliases(
                [
                    models.CreateAliasOperation(
                        create_alias=models.CreateAlias(collection_name=name, alias_name=alias)
                    )
                    for alias in aliases
                ]
            )


class Names:
    """The names of a namespace's collections and aliases, unique for each block."""

    def __init__(self, namespace: str) -> None:
        # the part for the namespace has no underscore, because an underscore ends it
        short = f"{_OTHER.sub('-', namespace)[:_MOST]}~{_digest(namespace)}"
        self._prefix = f"agent_memory_{namespace if _PLAIN.fullmatch(namespace) else short}_"

    def recalled(self, block: str) -> str:
        """Return the alias of the active collection."""
        return self._prefix + block

    def written(self, block: str) -> str:
        """Return the alias of the collection that is written to."""
        return f"{self._prefix}{block}.written"

    def claim(self, block: str) -> str:
        """Return the collection whose creation decides the embedding of a new block."""
        return f"{self._prefix}{block}.claim"

    def vectors(self, block: str, dimension: int, model: str) -> str:
        """Return the collection of a block's vectors of one embedding."""
        slug = _OTHER.sub("-", model)[:_MOST]
        digest = _digest(f"{dimension}\x1f{model}")
        return f"{self._prefix}{block}.{slug}-{dimension}-{digest}"

    def in_force(self, alias: str) -> str | None:
        """Return the block if an alias is that of an active collection, or else None."""
        block = alias.removeprefix(self._prefix)
        return None if block == alias or "." in block else block

    def is_of(self, block: str, collection: str) -> bool:
        """Return whether a collection belongs to a block, with any embedding."""
        has_prefix = collection.startswith(f"{self._prefix}{block}.")
        return has_prefix and collection != self.claim(block)


def embedding(collection: str) -> tuple[int, str]:
    """Return the dimension and the short model name from a collection's name."""
    slug, dimension, _ = collection.partition(".")[2].rsplit("-", 2)
    return int(dimension), slug


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST]
