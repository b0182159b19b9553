"""`QdrantStore`: vectors on a Qdrant server, one collection per block and embedding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from agent_memory.core.records import Hit, Lease, Record
from agent_memory.errors import DimensionMismatch, StoreUnavailable
from agent_memory.stores.coding import mismatch
from agent_memory.stores.damage import undamaged
from agent_memory.stores.qdrant.collections import Collections
from agent_memory.stores.qdrant.connection import Connection, Missing
from agent_memory.stores.qdrant.names import Names, embedding
from agent_memory.stores.qdrant.points import batches, features_at, record_at, where
from agent_memory.stores.qdrant.views import (
    holding,
    neighbourhood,
    numbers_of,
    queries,
    ranked_hits,
)

if TYPE_CHECKING:
    from agent_memory.retrieval.features import Features
    from agent_memory.retrieval.query import Query

_PAGE = 200
_NEAR = 20  # records to one candidate, at most
_MORE = 1.25  # times as many are asked for: a server adds up the numbers of a word
_TRIES = 5
"""Other processes may begin the block, or drop it, between two steps."""


class QdrantStore:
    """One point per record, searched among those of its owner. A `SwappingVectorStore`.

    A block that is rebuilt for another embedding has two collections: the one in force, which
    processes with the former settings go on searching, and the one that is filled. Each process
    writes only to the collection of its own embedding, so that no two ever mix.

    Args:
        url: "http://host:6333" (its key, if any, comes from QDRANT_API_KEY), or ":memory:".
        namespace: As in the session store.

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
        """As `VectorStore.open_vectors`. While another embedding is being filled, those who have
        the one in force open it too: they can search."""
        name = self._names.vectors(block, dimension, model)
        for _ in range(_TRIES):
            roles = self._collections.roles(block)
            stored = {roles.recalled, roles.written} - {None}
            if not stored:
                with suppress(Missing):  # another process has just finished what was begun
                    stored = {self._collections.begin(block, name, dimension, model)}
            if name in stored:
                self._opened[block] = (dimension, model)
                return
            if stored:
                other = embedding(str(roles.recalled or stored.pop()))
                raise DimensionMismatch(mismatch(block, other, (dimension, model)))
        raise StoreUnavailable(
            f"The collections of block {block!r} in Qdrant come and go while they are opened. See "
            "that nobody clears them, and try again."
        )

    def put_vectors(
        self,
        block: str,
        records: Sequence[Record],
        features: Features,
        *,
        lease: Lease | None = None,
    ) -> None:
        """As `VectorStore.put_vectors`.

        Raises:
            DimensionMismatch: The block is being rebuilt, or was, for another embedding.
        """
        if not records:
            return
        name = self._own(block, features.dimension)
        # A rebuild that begins after this look and before the write takes nothing away: the session
        # was in the log before, so that the rebuild comes to it, waits for its lease, which this
        # writer holds, and puts its cursor back. If the lease ran out meanwhile, the cursor that
        # this writer would move is refused.
        if not self._collections.is_written(block, name):
            self._check_written(block, name)
        try:
            with self._connection.reached() as client:
                for batch in batches(records, features):
                    client.upsert(name, batch, wait=True)
        except Missing:  # the rebuild that began meanwhile is even done
            self._check_written(block, name)
            raise

    def search_vectors(self, block: str, owner: str, query: Query, limit: int) -> list[Hit]:
        """As `VectorStore.search_vectors`, in two requests: the candidates, and their neighbours.

        Raises:
            DimensionMismatch: The block was rebuilt for another embedding.
        """
        from agent_memory.retrieval.index import DEPTH

        width = len(query.meaning) or None
        if block in self._opened:
            name: str | None = self._own(block, width)
        else:
            name = self._in_force(block, width)
        asked = queries(owner, query, int(_MORE * max(DEPTH, limit))) if limit > 0 and name else []
        points: dict[Any, Any] = {}
        held, count, dimension = [0.0] * len(query.words), 0, 0
        if asked and name is not None:
            dimension = embedding(name)[0]
            try:
                with self._connection.reached() as client:
                    batch = client.query_batch_points(name, asked)
                    count = client.count(name, count_filter=where(owner=owner), exact=False).count
                    answers = [one.points for one in batch]
                    found = {
                        point.id: point
                        for some in answers[len(numbers_of(query)) :]
                        for point in some
                    }
                    if found:
                        near, _ = client.scroll(
                            name, neighbourhood(owner, found), limit=_NEAR * len(found),
                            with_vectors=True,
                        )  # fmt: skip
                        points = {**{point.id: point for point in near}, **found}
                held = holding(query, answers, count)
            except Missing:
                self._check_recalled(block)
                points, held, count = {}, [0.0] * len(query.words), 0
        return ranked_hits([*points.values()], dimension, query, held, count, limit, block)

    def delete_vectors(
        self,
        block: str,
        *,
        owner: str | None = None,
        session_id: str | None = None,
        after: int = 0,
        lease: Lease | None = None,
    ) -> None:
        """As `VectorStore.delete_vectors`: from all of the block's collections. Only who rebuilds
        it, and takes nothing back but to write it anew, leaves the one in force as it is."""
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
        """As `VectorStore.vector_blocks`, of what is in force."""
        told: dict[str, tuple[int, str]] = {}
        for block, name in self._collections.in_force().items():
            with suppress(Missing):  # it was cleared just now
                told[block] = self._collections.embedding(name)
        return told

    def all_vectors(
        self, block: str, *, session_id: str | None = None
    ) -> Iterator[tuple[list[Record], Features]]:
        """As `VectorStore.all_vectors`, of what is in force."""
        name = self._in_force(block, None)
        matched = None if session_id is None else where(session_id=session_id)
        offset: Any = None
        while name is not None:
            try:
                with self._connection.reached() as client:
                    points, offset = client.scroll(
                        name, matched, limit=_PAGE, offset=offset, with_vectors=True
                    )
            except Missing:  # it was cleared just now
                return
            if points:
                found = undamaged(points, lambda point: (record_at(point.payload, block), point))
                some = [point for _, point in found]
                yield [record for record, _ in found], features_at(some, embedding(name)[0])
            if offset is None:
                return

    def begin_vectors(self, block: str, dimension: int, model: str) -> None:
        name = self._names.vectors(block, dimension, model)
        roles = self._collections.roles(block)
        if roles.recalled is None and roles.written != name:
            self.clear_vectors(block)  # what was left by who was killed, if anything
            self.open_vectors(block, dimension, model)
            return
        self._collections.make(name, dimension, model)
        if roles.written != name:
            self._collections.write_to(block, name)
        if roles.written and roles.written not in (name, roles.recalled):
            self._collections.drop(roles.written)  # its rebuild is given up for this one

    def fill_vectors(self, block: str) -> bool:
        name = self._own(block)
        roles = self._collections.roles(block)
        if roles.written != name:
            raise self._replaced(block, roles.written)
        if roles.recalled == name:
            return False
        self._filled.add(block)
        return True

    def swap_vectors(self, block: str) -> None:
        name = self._own(block)
        others = self._collections.of(block)  # listed first: one that comes later is no leftover
        roles = self._collections.roles(block)
        if roles.written != name:
            raise self._replaced(block, roles.written)
        if roles.recalled != name:
            self._collections.recall_from(block, name)
        left = [other for other in others if other != name]
        self._collections.drop(*left, self._names.claim(block))
        self._filled.discard(block)

    def close(self) -> None:
        """Close the client."""
        self._connection.close()

    def _own(self, block: str, width: int | None = None) -> str:
        """The collection of the embedding that the block was opened with."""
        opened = self._opened.get(block)
        if opened is None or width not in (None, opened[0]):
            known = opened or (0, "no embedder")
            raise DimensionMismatch(mismatch(block, known, (width or 0, "unnamed")))
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
        if written is None:  # somebody has cleared it since it was opened
            self.open_vectors(block, *self._opened[block])
        elif written != name:
            raise self._replaced(block, written)

    def _replaced(self, block: str, written: str | None) -> DimensionMismatch:
        model, stored = self._opened[block][1], embedding(str(written))
        return DimensionMismatch(
            f"Block {block!r} is rebuilt for {stored[1]!r} with {stored[0]} dimensions; this "
            f"process has {model!r} still. Replace it by one with the new settings, which absorbs "
            f"what waits. Or go back: `agent-memory replay {block}` with the settings of this one."
        )
