"""`VectorIndex` and `WordIndex`: items by id, searched by cosine similarity or by words alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from agent_memory.core.limits import how_many, quoted, text_of
from agent_memory.core.records import Hit, Record
from agent_memory.errors import ConfigError, DimensionMismatch, InvalidInput, install_command
from agent_memory.models.embedders import open_embedder
from agent_memory.models.embedders.base import Embedder, NoEmbedder
from agent_memory.standalone.item_index import Item, ItemIndex, Match, above, match_of
from agent_memory.stores.base import Store, VectorStore

if TYPE_CHECKING:
    import numpy as np

    from agent_memory.retrieval.features import Features

_NO_MODEL = "given"
_WORDS = "words"
_LEAST_DEPTH = 50


class VectorIndex(ItemIndex):
    """An index of items by id. A search ranks the items by the cosine similarity to the query.

    A user's items are found only by searches with that `user_id`. `delete_user` of an `AgentMemory`
    with the same store and namespace erases them. The index is thread-safe. It reads no
    environment variables except the API keys of models. Use it as a context manager, or call
    `close`.

    Args:
        store: A URL as in `AgentMemoryConfig`, the URL of a Qdrant server, or Qdrant's ":memory:"
            (extra `qdrant`). An open store can be passed too. `close` does not close this store.
        name: The index's name in the store: lower-case letters, digits and underscores.
        embedding: An embedding model as in `AgentMemoryConfig`, or your own embedder. None means
            the local embedder. If `dimension` is set, None means no embedder: every item then needs
            a vector.
        dimension: The dimension of the vectors. None means the embedder's dimension.
        namespace: The namespace, if `store` is a URL.

    Raises:
        ConfigError: The name is invalid, there is neither an embedder nor a dimension, an extra is
            missing, or the kind of store is unknown.
        DimensionMismatch: The embedder has another dimension, or the index was created with another
            dimension or model.
        ModelError: The embedder cannot report its dimension.
        StoreError: The store cannot be opened.
    """

    def __init__(
        self,
        store: str | Store | VectorStore = "sqlite:///agent_memory.db",
        *,
        name: str = "index",
        embedding: str | Embedder | None = None,
        dimension: int | None = None,
        namespace: str = "default",
    ) -> None:
        self._embedder = _embedder(embedding, dimension)
        self.dimension = _dimension(self._embedder, dimension)
        model = self._embedder.name if self._embedder is not None else _NO_MODEL
        super().__init__(store, name, namespace, (self.dimension + 1, model))  # `lifted` adds one

    def __repr__(self) -> str:
        return f"VectorIndex(name={self._name!r}, dimension={self.dimension})"

    def search(
        self,
        query: str | Sequence[float] | np.ndarray,
        *,
        top_k: int = 10,
        threshold: float | None = None,
        user_id: str | None = None,
    ) -> list[Match]:
        """Return the items most similar to a query, best first. Ties are ordered by id.

        Args:
            query: A text to embed, or a vector.
            top_k: The maximum number of results.
            threshold: Results have a cosine above this number. None allows any cosine.
            user_id: The owner. None means shared items.

        Raises:
            InvalidInput: The query, `top_k` or `threshold` is invalid.
            DimensionMismatch: The query's vector has another dimension.
            ModelError: The embedder failed.
            StoreError: The store failed.
        """
        owner, most, least = self._owner(user_id), how_many("top_k", top_k), above(threshold)
        item = Item("query", query) if isinstance(query, str) else Item("query", vector=query)
        (vector,) = self._vectors_of([item], "The query").values()
        return self._best(owner, vector, most, least)

    def _describe(self, dimension: int, model: str) -> str:
        return super()._describe(dimension - 1, model)

    def _vectors_of(
        self, items: Sequence[Item], what: str = "The vector of item {!r}"
    ) -> dict[str, np.ndarray]:
        """Return the vectors of items by id. All texts are embedded in one call."""
        from agent_memory.retrieval.vectors import vector_of

        rows: dict[str, Any] = {item.id: item.vector for item in items if item.vector is not None}
        texts = {item.id: item.text or "" for item in items if item.vector is None}
        if texts and self._embedder is None:
            raise InvalidInput(
                f"The index {self._name!r} has no embedder for texts. Pass vectors, or open it "
                "with an `embedding`."
            )
        if texts and self._embedder is not None:
            rows.update(zip(texts, self._embedder.embed(list(texts.values())), strict=True))
        vectors = {name: vector_of(row, what.format(name)) for name, row in rows.items()}
        for name, vector in vectors.items():
            if len(vector) != self.dimension:
                raise DimensionMismatch(
                    f"{what.format(name)} has {len(vector)} numbers; the vectors of the index "
                    f"{self._name!r} have {self.dimension}."
                )
        return vectors

    def _indexed(self, items: Sequence[Item]) -> tuple[Features, list[dict[str, Any]]]:
        import numpy as np

        from agent_memory.retrieval.features import Features
        from agent_memory.retrieval.vectors import lifted, packed

        vectors = self._vectors_of(items)
        features = Features.of_vectors(np.stack([lifted(vectors[item.id]) for item in items]))
        bare: dict[str, Any] = {"bare": True}
        return features, [
            {"vector": packed(vectors[item.id])} | (bare if item.text is None else {})
            for item in items
        ]

    def _item(self, record: Record) -> Item:
        from agent_memory.retrieval.vectors import unpacked

        vector = unpacked(record.metadata["vector"], self.dimension)
        return replace(super()._item(record), vector=vector)

    def _best(self, owner: str, vector: np.ndarray, top_k: int, threshold: float) -> list[Match]:
        from agent_memory.retrieval.query import Query
        from agent_memory.retrieval.vectors import lifted, most_unseen

        question, depth = Query(lifted(vector)), max(_LEAST_DEPTH, 2 * top_k)
        while top_k:
            hits = self._vectors.search_vectors(self._block, owner, question, depth)
            pairs = self._scored(hits, vector)
            best = [match_of(record, score) for record, score in pairs[:top_k] if score > threshold]
            if len(hits) < depth:
                return best
            # because of single precision, an item as good as the last result may be missing
            unseen = most_unseen(min(hit.cosine for hit in hits))
            if unseen < max(pairs[top_k - 1][1], threshold):
                return best
            depth *= 4
        return []

    def _scored(self, hits: Sequence[Hit], vector: np.ndarray) -> list[tuple[Record, float]]:
        """Score hits by their original vectors, best first."""
        import numpy as np

        from agent_memory.retrieval.vectors import cosines, unpacked

        if not hits:
            return []
        records = [hit.record for hit in hits]
        rows = np.stack([unpacked(record.metadata["vector"], self.dimension) for record in records])
        scored = zip(records, cosines(rows, vector), strict=True)
        return sorted(scored, key=lambda pair: (-pair[1], pair[0].metadata["id"]))


def _embedder(value: str | Embedder | None, dimension: int | None) -> Embedder | None:
    if value is None and dimension is not None:
        return None
    return open_embedder(value) if value is None or isinstance(value, str) else value


def _dimension(embedder: Embedder | None, wanted: int | None) -> int:
    if wanted is not None and (type(wanted) is not int or wanted < 1):
        raise ConfigError(f"dimension is {quoted(wanted)}. Use a whole number above 0.")
    gives = wanted if embedder is None else embedder.dimension
    if not gives:
        raise ConfigError(
            "Without an embedder the dimension is unknown. Pass `dimension` and a vector with each "
            f"item, or an `embedding`. For the local one: {install_command('local')}"
        )
    if wanted not in (None, gives):
        raise DimensionMismatch(
            f"dimension is {wanted}, but the embedder's vectors have {gives} numbers. "
            "Change `dimension` or `embedding`."
        )
    return gives


class WordIndex(ItemIndex):
    """An index of texts by id, ranked with Okapi BM25. It needs no embedder and no model.

    Words are stemmed in some twenty languages, and stop words are left out. If a text is too short
    to detect its language, a word counts once for each of its possible stems.

    A user's items are found only by searches with that `user_id`, which count word frequencies
    among these items. `delete_user` of an `AgentMemory` with the same store and namespace erases
    them. The index is thread-safe. Use it as a context manager, or call `close`.

    Args:
        store: See `VectorIndex`.
        name: See `VectorIndex`. A vector index must not have the same name.
        namespace: See `VectorIndex`.

    Raises:
        ConfigError: The name is invalid, or the kind of store is unknown.
        DimensionMismatch: A vector index has the same name.
        StoreError: The store cannot be opened.
    """

    def __init__(
        self,
        store: str | Store | VectorStore = "memory://",
        *,
        name: str = "words",
        namespace: str = "default",
    ) -> None:
        super().__init__(store, name, namespace, (0, _WORDS))

    def __repr__(self) -> str:
        return f"WordIndex(name={self._name!r})"

    def search(
        self,
        query: str,
        *,
        top_k: int = 10,
        threshold: float | None = None,
        user_id: str | None = None,
    ) -> list[Match]:
        """Return the texts that share words with a query, best first. Ties are ordered by id.

        Args:
            query: The query text.
            top_k: The maximum number of results.
            threshold: Results have a score above this number. None allows any score.
            user_id: The owner. None means shared items.

        Raises:
            InvalidInput: The query, `top_k` or `threshold` is invalid.
            StoreError: The store failed.
        """
        from agent_memory.retrieval.query import Query

        owner, most, least = self._owner(user_id), how_many("top_k", top_k), above(threshold)
        question = Query.of_question(text_of("query", query), NoEmbedder())
        if not most or not question.words:
            return []
        hits = self._vectors.search_vectors(self._block, owner, question, most)
        matches = [match_of(hit.record, hit.words) for hit in hits if hit.words > max(least, 0.0)]
        return sorted(matches, key=lambda match: (-match.score, match.id))[:most]

    def _indexed(self, items: Sequence[Item]) -> tuple[Features, list[dict[str, Any]]]:
        from agent_memory.retrieval.features import TURN_LENGTH, Features, weighted, written

        for item in items:
            if item.text is None or item.vector is not None:
                raise InvalidInput(
                    f"Item {item.id!r} must have a `text` and no `vector`. For vectors, use a "
                    "VectorIndex."
                )
        words = [weighted(written(item.text or ""), TURN_LENGTH) for item in items]
        return Features.of_words(words), [{} for _ in items]
