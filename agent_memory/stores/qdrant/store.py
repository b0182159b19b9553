"""`QdrantStore`: vectors on a Qdrant server, in one collection for each block.

The collection's name contains the block's embedding: the dimension, and a short form of the model.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from agent_memory.core.records import Hit, Lease, Record
from agent_memory.errors import DimensionMismatch
from agent_memory.retrieval.index import DEPTH
from agent_memory.stores.damage import undamaged
from agent_memory.stores.kernel.coding import mismatch
from agent_memory.stores.qdrant import points
from agent_memory.stores.qdrant.connection import Connection, Missing, Taken
from agent_memory.stores.qdrant.points import models

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
                for batch in points.batches(records, features):
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
        requests = points.queries(owner, query, depth) if limit > 0 and name else []
        by_id: dict[Any, Any] = {}
        word_counts, count, dimension = [0.0] * len(query.words), 0, 0
        if requests and name is not None:
            dimension = embedding(name)[0]
            try:
                with self._connection.reached() as client:
                    batch = client.query_batch_points(name, requests)
                    owned = points.where(owner=owner)
                    count = client.count(name, count_filter=owned, exact=False).count
                    answers = [answer.points for answer in batch]
                    best = answers[len(points.numbers_of(query)) :]
                    candidates = {point.id: point for hits in best for point in hits}
                    if candidates:
                        wanted = points.neighbourhood(owner, candidates)
                        most = _NEAR * len(candidates)
                        near, _ = client.scroll(name, wanted, limit=most, with_vectors=True)
                        by_id = {**{point.id: point for point in near}, **candidates}
                word_counts = points.holding(query, answers, count)
            except Missing:
                stored, opened = self._collections.of(block), self._opened.get(block)
                if stored and opened and stored != name:
                    raise DimensionMismatch(mismatch(block, embedding(stored), opened)) from None
                by_id, word_counts, count = {}, [0.0] * len(query.words), 0
        every = [*by_id.values()]
        return points.ranked_hits(every, dimension, query, word_counts, count, limit, block)

    def delete_vectors(
        self,
        block: str,
        *,
        owner: str | None = None,
        session_id: str | None = None,
        after: int = 0,
        lease: Lease | None = None,
    ) -> None:
        matched = points.where(owner=owner, session_id=session_id, after=after)
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
        matched = None if session_id is None else points.where(session_id=session_id)
        offset: Any = None
        while name is not None:
            try:
                with self._connection.reached() as client:
                    page, offset = client.scroll(
                        name, matched, limit=_PAGE, offset=offset, with_vectors=True
                    )
            except Missing:  # the collection was just deleted
                return
            if page:
                decoded = undamaged(page, lambda it: (points.record_at(it.payload, block), it))
                features = points.features_at([point for _, point in decoded], embedding(name)[0])
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
            dense = {points.MEANING: dimension} if dimension else {}
            self._make(name, dense, (points.WORDS,), {_MODEL: model})
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
