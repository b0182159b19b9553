"""A block's collections on a Qdrant server, and which of them are in force."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from agent_memory.stores.qdrant.connection import Connection, Missing, Taken
from agent_memory.stores.qdrant.names import Names, embedding
from agent_memory.stores.qdrant.points import MEANING, WORDS

_LINKS = 16
_MODEL = "model"


@dataclass(frozen=True, slots=True)
class Roles:
    """Which collection is recalled from by whoever opened none, and which is written to.

    Both None for a block that is new; one and the same, but while the block is rebuilt.
    """

    recalled: str | None
    written: str | None


class Collections:
    """Makes, lists, points to and drops collections.

    Args:
        connection: To the server.
        names: What they are called.
    """

    def __init__(self, connection: Connection, names: Names) -> None:
        self._connection = connection
        self._names = names

    def roles(self, block: str) -> Roles:
        """Where a block's aliases point to."""
        with self._connection.reached() as client:
            found = {a.alias_name: a.collection_name for a in client.get_aliases().aliases}
        recalled = found.get(self._names.recalled(block))
        return Roles(recalled, found.get(self._names.written(block), recalled))

    def is_written(self, block: str, name: str) -> bool:
        """Whether a collection is the one to write to."""
        with self._connection.reached() as client:
            aliases = client.get_collection_aliases(name).aliases
        return self._names.written(block) in {alias.alias_name for alias in aliases}

    def in_force(self) -> dict[str, str]:
        """By block, the collection that is recalled from."""
        with self._connection.reached() as client:
            found = {a.alias_name: a.collection_name for a in client.get_aliases().aliases}
        blocks = {self._names.in_force(alias): name for alias, name in found.items()}
        return {block: name for block, name in blocks.items() if block is not None}

    def embedding(self, name: str) -> tuple[int, str]:
        """Dimension and model of a collection's vectors.

        A server before 1.16 does not keep the model: there it is as the name says it.
        """
        dimension, slug = embedding(name)
        with self._connection.reached() as client:
            told = client.get_collection(name).config.metadata or {}
        return dimension, str(told.get(_MODEL, slug))

    def of(self, block: str) -> list[str]:
        """All that hold vectors of a block; those that a rebuild given up has left, too."""
        with self._connection.reached() as client:
            every = client.get_collections().collections
        return sorted(one.name for one in every if self._names.is_of(block, one.name))

    def begin(self, block: str, name: str, dimension: int, model: str) -> str:
        """Give a block that has none its first collection; tells which it got.

        Of several processes with different embeddings one must win. Aliases can't decide that: who
        sets one overwrites another's. A collection is made once, so that one of a name that all
        agree on decides, by the name of its vector. Everyone finishes what the winner began.
        """
        claim = self._names.claim(block)
        tail = name.partition(".")[2]
        with suppress(Taken):
            self._make(claim, {tail: 1})
        with self._connection.reached() as client:
            vectors = client.get_collection(claim).config.params.vectors
        won = next(iter(vectors)) if isinstance(vectors, dict) else tail
        if won != tail:
            return f"{self._names.recalled(block)}.{won}"
        found = self.roles(block).recalled  # a claim may be of after the block was begun
        if found is None:
            self.make(name, dimension, model)
            self._point(name, self._names.recalled(block), self._names.written(block))
        self.drop(claim)
        return found or name

    def make(self, name: str, dimension: int, model: str) -> None:
        """Make a collection with its indexes, as far as they are not there."""
        from qdrant_client import models

        with suppress(Taken):
            dense = {MEANING: dimension} if dimension else {}
            self._make(name, dense, (WORDS,), {_MODEL: model})
        if self._connection.local:  # it has no payload indexes, and warns
            return
        tenant = models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD, is_tenant=True)
        with self._connection.reached() as client:
            client.create_payload_index(name, "owner", tenant)
            client.create_payload_index(name, "session_id", models.PayloadSchemaType.KEYWORD)
            client.create_payload_index(name, "last", models.PayloadSchemaType.INTEGER)

    def write_to(self, block: str, name: str) -> None:
        """Have a block written to a collection."""
        self._point(name, self._names.written(block))

    def recall_from(self, block: str, name: str) -> None:
        """Put a collection in force."""
        self._point(name, self._names.recalled(block))

    def drop(self, *names: str) -> None:
        """Drop collections, those that there are, with the aliases that point to them."""
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

        # of unit length as they come: the server need not make them so, by another rounding
        vectors = {
            vector: models.VectorParams(size=size, distance=models.Distance.DOT)
            for vector, size in dense.items()
        }
        # a word's weight in a text is stored, its rarity is multiplied in by the server
        words = {
            vector: models.SparseVectorParams(modifier=models.Modifier.IDF) for vector in sparse
        }
        # every search names an owner: a graph for each large one, and none over all of them
        graphs = models.HnswConfigDiff(m=0, payload_m=_LINKS)
        with self._connection.reached() as client:
            client.create_collection(
                name,
                vectors_config=vectors,
                sparse_vectors_config=words or None,
                hnsw_config=graphs,
                metadata=metadata,
            )

    def _point(self, name: str, *aliases: str) -> None:
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
