"""`QdrantStore`: vectors on a Qdrant server, in one collection for each block."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from agent_memory.core.records import Hit, Lease, Record
from agent_memory.errors import DimensionMismatch
from agent_memory.retrieval.index import DEPTH
from agent_memory.stores.damage import undamaged
from agent_memory.stores.kernel.coding import mismatch
from agent_memory.stores.qdrant.collections import Collections, Names, embedding
from agent_memory.stores.qdrant.connection import Connection, Missing
from agent_memory.stores.qdrant.points import (
    batches,
    features_at,
    holding,
    neighbourhood,
    numbers_of,
    queries,
    ranked_hits,
    record_at,
    where,
)

if TYPE_CHECKING:
    from agent_memory.retrieval.features import Features
    from agent_memory.retrieval.query import Query

_PAGE = 200
_NEAR = 20  # the maximum number of neighbours to read for each candidate
_MORE = 1.25  # 25 % more candidates are read, because the server scores words less exactly
_TRIES = 5
"""The maximum number of attempts to open a block while other processes create or delete it."""


class QdrantStore:
    """Stores each record as a point in Qdrant. A search covers the points of one owner.

    A block has one collection for one embedding, that is, a pair of dimension and model. Each
    process uses the collection of its own embedding only, so that embeddings never mix.

    Args:
        url: "http://host:6333", or ":memory:" for the client's local mode. The environment variable
            QDRANT_API_KEY may have the server's key.
        namespace: The namespace, as in the session store.

    Raises:
        MissingExtra: qdrant-client is not installed.
        UnknownStore: The URL names no Qdrant server.
    """

    def __init__(self, url: str, namespace: str = "default") -> None:
        self._connection = Connection(url)
        self._names = Names(namespace)
        self._collections = Collections(self._connection, self._names)
        self._opened: dict[str, tuple[int, str]] = {}

    def open_vectors(self, block: str, dimension: int, model: str) -> None:
        for _ in range(_TRIES - 1):
            # another process may have just completed the creation, or cleared the block
            with suppress(Missing):
                self._open_as(block, dimension, model)
                return
        self._open_as(block, dimension, model)

    def _open_as(self, block: str, dimension: int, model: str) -> None:
        stored = self._collections.open(block, dimension, model)
        if stored != self._names.vectors(block, dimension, model):
            raise DimensionMismatch(mismatch(block, embedding(stored), (dimension, model)))
        self._opened[block] = (dimension, model)

    def put_vectors(
        self,
        block: str,
        records: Sequence[Record],
        features: Features,
        *,
        lease: Lease | None = None,
    ) -> None:
        """Store vectors, like `VectorStore.put_vectors`.

        Raises:
            DimensionMismatch: The block was rebuilt for another embedding.
        """
        if not records:
            return
        name = self._own(block, features.dimension)

        def write() -> None:
            with self._connection.reached() as client:
                for batch in batches(records, features):
                    client.upsert(name, batch, wait=True)

        try:
            write()
        except Missing:  # another process cleared the block since it was opened
            self.open_vectors(block, *self._opened[block])
            write()

    def search_vectors(self, block: str, owner: str, query: Query, limit: int) -> list[Hit]:
        """Search like `VectorStore.search_vectors`.

        Raises:
            DimensionMismatch: The block was rebuilt for another embedding.
        """
        width = len(query.meaning) or None
        name = self._own(block, width) if block in self._opened else self._stored(block, width)
        depth = int(_MORE * max(DEPTH, limit))
        requests = queries(owner, query, depth) if limit > 0 and name else []
        points: dict[Any, Any] = {}
        word_counts, count, dimension = [0.0] * len(query.words), 0, 0
        if requests and name is not None:
            dimension = embedding(name)[0]
            try:
                with self._connection.reached() as client:
                    batch = client.query_batch_points(name, requests)
                    count = client.count(name, count_filter=where(owner=owner), exact=False).count
                    answers = [answer.points for answer in batch]
                    best = answers[len(numbers_of(query)) :]
                    candidates = {point.id: point for hits in best for point in hits}
                    if candidates:
                        near, _ = client.scroll(
                            name, neighbourhood(owner, candidates), limit=_NEAR * len(candidates),
                            with_vectors=True,
                        )  # fmt: skip
                        points = {**{point.id: point for point in near}, **candidates}
                word_counts = holding(query, answers, count)
            except Missing:
                stored, opened = self._collections.of(block), self._opened.get(block)
                if stored and opened and stored != name:
                    raise DimensionMismatch(mismatch(block, embedding(stored), opened)) from None
                points, word_counts, count = {}, [0.0] * len(query.words), 0
        return ranked_hits([*points.values()], dimension, query, word_counts, count, limit, block)

    def delete_vectors(
        self,
        block: str,
        *,
        owner: str | None = None,
        session_id: str | None = None,
        after: int = 0,
        lease: Lease | None = None,
    ) -> None:
        matched = where(owner=owner, session_id=session_id, after=after)
        name = self._collections.of(block)
        if name is not None:
            with suppress(Missing), self._connection.reached() as client:
                client.delete(name, points_selector=matched, wait=True)

    def clear_vectors(self, block: str) -> None:
        self._collections.clear(block)
        self._opened.pop(block, None)

    def vector_blocks(self) -> dict[str, tuple[int, str]]:
        embeddings: dict[str, tuple[int, str]] = {}
        for block, name in self._collections.current().items():
            with suppress(Missing):  # the collection was just deleted
                embeddings[block] = self._collections.embedding(name)
        return embeddings

    def all_vectors(
        self, block: str, *, session_id: str | None = None
    ) -> Iterator[tuple[list[Record], Features]]:
        name = self._stored(block, None)
        matched = None if session_id is None else where(session_id=session_id)
        offset: Any = None
        while name is not None:
            try:
                with self._connection.reached() as client:
                    points, offset = client.scroll(
                        name, matched, limit=_PAGE, offset=offset, with_vectors=True
                    )
            except Missing:  # the collection was just deleted
                return
            if points:
                decoded = undamaged(points, lambda point: (record_at(point.payload, block), point))
                features = features_at([point for _, point in decoded], embedding(name)[0])
                yield [record for record, _ in decoded], features
            if offset is None:
                return

    def close(self) -> None:
        self._connection.close()

    def _own(self, block: str, width: int | None = None) -> str:
        """Return the name of the collection for the embedding with which the block was opened."""
        opened = self._opened.get(block)
        if opened is None or width not in (None, opened[0]):
            stored = opened or (0, "no embedder")
            raise DimensionMismatch(mismatch(block, stored, (width or 0, "unnamed")))
        return self._names.vectors(block, *opened)

    def _stored(self, block: str, width: int | None) -> str | None:
        """Return the name of a block's collection. `width`, if set, must be its dimension."""
        name = self._collections.of(block)
        if name is not None and width not in (None, (stored := embedding(name))[0]):
            raise DimensionMismatch(mismatch(block, stored, (width or 0, "unnamed")))
        return name
