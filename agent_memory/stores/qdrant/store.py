"""`QdrantStore`: vectors on a Qdrant server, one collection per block and embedding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from agent_memory.core.records import Hit, Lease, Record
from agent_memory.errors import DimensionMismatch, StoreUnavailable
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
_NEAR = 20  # the most neighbours to read for each candidate
_MORE = 1.25  # 25 % more candidates are read, because the server scores words less exactly
_TRIES = 5
"""The most attempts to open a block while other processes create or delete it."""


class QdrantStore:
    """Stores each record as a point in Qdrant. A search covers the points of one owner.

    An embedding is a pair of dimension and model. While a block is rebuilt for another embedding,
    it has two collections: the active one, which is searched, and the one that is being filled.
    Processes with the old settings still search the active collection. Each process writes only to
    the collection of its own embedding, so that embeddings never mix.

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
        self._filled: set[str] = set()

    def open_vectors(self, block: str, dimension: int, model: str) -> None:
        """Open a block, like `VectorStore.open_vectors`.

        During a rebuild for another embedding, processes with the active embedding can still open
        the block and search it.
        """
        name = self._names.vectors(block, dimension, model)
        for _ in range(_TRIES):
            roles = self._collections.roles(block)
            stored = {roles.recalled, roles.written} - {None}
            if not stored:
                with suppress(Missing):  # another process has just completed the creation
                    stored = {self._collections.begin(block, name, dimension, model)}
            if name in stored:
                self._opened[block] = (dimension, model)
                return
            if stored:
                other = embedding(str(roles.recalled or stored.pop()))
                raise DimensionMismatch(mismatch(block, other, (dimension, model)))
        raise StoreUnavailable(
            f"Other processes kept creating and deleting the collections of block {block!r} in "
            "Qdrant. Make sure that no process clears them, and try again."
        )

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
            DimensionMismatch: A rebuild for another embedding has begun or ended.
        """
        if not records:
            return
        name = self._own(block, features.dimension)
        # If a rebuild begins between this check and the write, no record is lost. The rebuild waits
        # for the session's lease, which this writer holds, then resets the session's cursor. If the
        # lease has expired, the store refuses to move the cursor for this writer.
        if not self._collections.is_written(block, name):
            self._check_written(block, name)
        try:
            with self._connection.reached() as client:
                for batch in batches(records, features):
                    client.upsert(name, batch, wait=True)
        except Missing:  # a concurrent rebuild has already finished
            self._check_written(block, name)
            raise

    def search_vectors(self, block: str, owner: str, query: Query, limit: int) -> list[Hit]:
        """Search like `VectorStore.search_vectors`.

        Raises:
            DimensionMismatch: The block was rebuilt for another embedding.
        """
        from agent_memory.retrieval.index import DEPTH

        width = len(query.meaning) or None
        if block in self._opened:
            name: str | None = self._own(block, width)
        else:
            name = self._in_force(block, width)
        requests = (
            queries(owner, query, int(_MORE * max(DEPTH, limit))) if limit > 0 and name else []
        )
        points: dict[Any, Any] = {}
        word_counts, count, dimension = [0.0] * len(query.words), 0, 0
        if requests and name is not None:
            dimension = embedding(name)[0]
            try:
                with self._connection.reached() as client:
                    batch = client.query_batch_points(name, requests)
                    count = client.count(name, count_filter=where(owner=owner), exact=False).count
                    answers = [answer.points for answer in batch]
                    candidates = {
                        point.id: point
                        for hits in answers[len(numbers_of(query)) :]
                        for point in hits
                    }
                    if candidates:
                        near, _ = client.scroll(
                            name, neighbourhood(owner, candidates), limit=_NEAR * len(candidates),
                            with_vectors=True,
                        )  # fmt: skip
                        points = {**{point.id: point for point in near}, **candidates}
                word_counts = holding(query, answers, count)
            except Missing:
                self._check_recalled(block)
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
        """Delete vectors from all of the block's collections, like `VectorStore.delete_vectors`.

        During a rebuild by this object, delete only from the new collection; see `fill_vectors`.
        """
        matched = where(owner=owner, session_id=session_id, after=after)
        own = self._opened.get(block) if block in self._filled else None
        names = [self._names.vectors(block, *own)] if own else self._collections.of(block)
        for name in names:
            with suppress(Missing), self._connection.reached() as client:
                client.delete(name, points_selector=matched, wait=True)

    def clear_vectors(self, block: str) -> None:
        self._collections.drop(*self._collections.of(block), self._names.claim(block))
        self._opened.pop(block, None)

    def vector_blocks(self) -> dict[str, tuple[int, str]]:
        """Return the embeddings of active collections, like `VectorStore.vector_blocks`."""
        embeddings: dict[str, tuple[int, str]] = {}
        for block, name in self._collections.in_force().items():
            with suppress(Missing):  # the collection was just deleted
                embeddings[block] = self._collections.embedding(name)
        return embeddings

    def all_vectors(
        self, block: str, *, session_id: str | None = None
    ) -> Iterator[tuple[list[Record], Features]]:
        """Yield records and features of the active collection, like `VectorStore.all_vectors`."""
        name = self._in_force(block, None)
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
                decoded_points = [point for _, point in decoded]
                yield (
                    [record for record, _ in decoded],
                    features_at(decoded_points, embedding(name)[0]),
                )
            if offset is None:
                return

    def begin_vectors(self, block: str, dimension: int, model: str) -> None:
        """Begin a rebuild of the block's vectors for this embedding. Idempotent.

        From now on, only vectors of this embedding can be written. A store object that opened the
        block with the active embedding can still search it, but its writes raise DimensionMismatch.
        """
        name = self._names.vectors(block, dimension, model)
        roles = self._collections.roles(block)
        if roles.recalled is None and roles.written != name:
            self.clear_vectors(block)  # a killed process may have left collections
            self.open_vectors(block, dimension, model)
            return
        self._collections.make(name, dimension, model)
        if roles.written != name:
            self._collections.point(name, self._names.written(block))
        if roles.written and roles.written not in (name, roles.recalled):
            self._collections.drop(roles.written)  # this rebuild replaces an unfinished one

    def fill_vectors(self, block: str) -> bool:
        """Return True if this object fills a new collection; False if its collection is active.

        If True, `delete_vectors` of this object no longer changes the active collection, because a
        rebuild deletes a session's vectors only to write them again. Other store objects still
        delete from both collections.

        Raises:
            DimensionMismatch: Vectors of another embedding are being filled.
        """
        name = self._own(block)
        roles = self._collections.roles(block)
        if roles.written != name:
            raise self._replaced(block, roles.written)
        if roles.recalled == name:
            return False
        self._filled.add(block)
        return True

    def swap_vectors(self, block: str) -> None:
        """Activate the filled collection, and delete the block's other collections. Idempotent.

        Raises:
            DimensionMismatch: Vectors of another embedding are being filled; nothing changed.
        """
        name = self._own(block)
        others = self._collections.of(block)  # before the swap: a newer collection must stay
        roles = self._collections.roles(block)
        if roles.written != name:
            raise self._replaced(block, roles.written)
        if roles.recalled != name:
            self._collections.point(name, self._names.recalled(block))
        left = [other for other in others if other != name]
        self._collections.drop(*left, self._names.claim(block))
        self._filled.discard(block)

    def close(self) -> None:
        self._connection.close()

    def _own(self, block: str, width: int | None = None) -> str:
        """Return the name of the collection for the embedding with which the block was opened."""
        opened = self._opened.get(block)
        if opened is None or width not in (None, opened[0]):
            stored = opened or (0, "no embedder")
            raise DimensionMismatch(mismatch(block, stored, (width or 0, "unnamed")))
        return self._names.vectors(block, *opened)

    def _in_force(self, block: str, width: int | None) -> str | None:
        with self._connection.reached() as client:
            if not client.collection_exists(self._names.recalled(block)):
                return None
        recalled = self._collections.roles(block).recalled
        if recalled and width not in (None, (stored := embedding(recalled))[0]):
            raise DimensionMismatch(mismatch(block, stored, (width or 0, "unnamed")))
        return recalled

    def _check_recalled(self, block: str) -> None:
        recalled = self._collections.roles(block).recalled
        opened = self._opened.get(block)
        if opened and recalled and recalled != self._names.vectors(block, *opened):
            raise self._replaced(block, recalled)

    def _check_written(self, block: str, name: str) -> None:
        written = self._collections.roles(block).written
        if written is None:  # another process cleared the block since it was opened
            self.open_vectors(block, *self._opened[block])
        elif written != name:
            raise self._replaced(block, written)

    def _replaced(self, block: str, written: str | None) -> DimensionMismatch:
        model, stored = self._opened[block][1], embedding(str(written))
        return DimensionMismatch(
            f"Block {block!r} is being rebuilt for {stored[1]!r} with {stored[0]} dimensions, but "
            f"this process uses {model!r}. Restart it with the new settings to absorb pending "
            f"entries. To undo, run `agent-memory replay {block}` with the current settings."
        )
