"""`VectorIndex`: vectors by id, found by cosine similarity only."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from agent_memory.core.limits import quoted
from agent_memory.core.records import Hit, Record
from agent_memory.errors import ConfigError, DimensionMismatch, InvalidInput, install_command
from agent_memory.models.embedders import open_embedder
from agent_memory.models.embedders.base import Embedder
from agent_memory.standalone.item_index import Item, ItemIndex, Match, check_search
from agent_memory.stores.base import Store, VectorStore

if TYPE_CHECKING:
    import numpy as np

_NAME = re.compile(r"[a-z][a-z0-9_]{0,47}")
_GIVEN = "given"
_EVERYBODYS = "everybody"
_LEAST_DEPTH = 50


class VectorIndex(ItemIndex):
    """Items by id, found by the cosine similarity of their vectors to a query's.

    Only searches for a user find that user's items. `delete_user` of an `AgentMemory` over the same
    store and namespace erases them. Thread-safe. Use it as a context manager, or call `close`. It
    reads only a provider's keys from the environment.

    Args:
        store: A URL as in `AgentMemoryConfig`, the URL of a Qdrant server, or Qdrant's ":memory:"
            (extra `qdrant`). An open store can be passed too; it is not closed.
        name: The index's name in the store: lower-case letters, digits and underscores.
        embedding: An embedding model as in `AgentMemoryConfig`, or your own embedder. None is the
            local one. None with a `dimension` uses no embedder: every item needs its vector.
        dimension: The dimension of the vectors; None for the embedder's.
        namespace: The namespace, if `store` is a URL.

    Raises:
        ConfigError: The name is invalid, there is neither an embedder nor a dimension, an extra is
            missing, or the kind of store is unknown.
        DimensionMismatch: The embedder has another dimension, or the index was created with another
            dimension or model.
        ModelError: The embedder cannot be asked for its dimension.
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
        model = self._embedder.name if self._embedder is not None else _GIVEN
        super().__init__(store, name, namespace, (self.dimension + 1, model))  # see `lifted`

    def __repr__(self) -> str:
        return f"VectorIndex(name={self._name!r}, dimension={self.dimension})"

    def store(
        self,
        items: Item | Mapping[str, Any] | Iterable[Item | Mapping[str, Any]],
        *,
        user_id: str | None = None,
    ) -> None:
        """Store items. Each replaces the item with the same id.

        All or none are stored. Qdrant has no transactions and may store a part if it fails.

        Args:
            items: One item or several, as `Item` or as a dict of its fields. For several with the
                same id the last one is stored.
            user_id: The owner; None for shared items.

        Raises:
            InvalidInput: An item is invalid. Nothing was stored.
            DimensionMismatch: A vector has another dimension. Nothing was stored.
            ModelError: The embedder failed. Nothing was stored.
            StoreError: The store failed.
        """
        import numpy as np

        from agent_memory.retrieval.features import Features
        from agent_memory.retrieval.texts import lifted

        owner = self._owner(user_id)
        given = [items] if isinstance(items, Item | Mapping) else items
        kept = {item.id: item for item in map(Item.of, given)}
        if not kept:
            return
        vectors = self._vectors_of(list(kept.values()))
        records = [self._record(owner, item, vectors[item.id]) for item in kept.values()]
        features = Features.of_vectors(np.stack([lifted(vectors[name]) for name in kept]))
        self._vectors.put_vectors(self._block, records, features)

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
            query: A text, which is embedded, or a vector.
            top_k: The maximum number of results.
            threshold: Only items with a cosine above it; None for all.
            user_id: The owner; None for shared items.

        Raises:
            InvalidInput: The query, `top_k` or `threshold` is invalid.
            DimensionMismatch: The query's vector has another dimension.
            ModelError: The embedder failed.
            StoreError: The store failed.
        """
        owner = self._owner(user_id)
        least = check_search(top_k, threshold)
        (wanted,) = self._vectors_of([_asked(query)], "The query").values()
        return self._best(owner, wanted, top_k, least)

    def _told(self, dimension: int, model: str) -> str:
        return super()._told(dimension - 1, model)

    def _vectors_of(
        self, items: Sequence[Item], what: str = "The vector of item {!r}"
    ) -> dict[str, np.ndarray]:
        """Return the vectors of items by id. All texts are embedded in one call."""
        from agent_memory.retrieval.texts import vector_of

        rows: dict[str, Any] = {one.id: one.vector for one in items if one.vector is not None}
        texts = {one.id: one.text or "" for one in items if one.vector is None}
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

    def _record(self, owner: str, item: Item, vector: np.ndarray) -> Record:
        from agent_memory.retrieval.texts import packed

        key = self._key(owner, item.id)
        own = deepcopy(item.metadata)
        kept: dict[str, Any] = {"id": item.id, "vector": packed(vector), "metadata": own}
        if item.text is None:
            kept["bare"] = True  # a record always has a text
        return Record(key, owner, key, 1, 1, item.text or "", (), datetime.now(UTC), kept)

    def _best(self, owner: str, wanted: np.ndarray, top_k: int, threshold: float) -> list[Match]:
        from agent_memory.retrieval.query import Query
        from agent_memory.retrieval.texts import lifted, most_unseen

        question, depth = Query(lifted(wanted)), max(_LEAST_DEPTH, 2 * top_k)
        while top_k:
            hits = self._vectors.search_vectors(self._block, owner, question, depth)
            found = self._matches(hits, wanted)
            best = [
                replace(one, metadata=deepcopy(one.metadata))  # stores cache records
                for one in found[:top_k]
                if one.score > threshold
            ]
            if len(hits) < depth:
                return best
            # due to single precision, an item as good as the last one may be missing
            unseen = most_unseen(min(hit.cosine for hit in hits))
            if unseen < max(found[top_k - 1].score, threshold):
                return best
            depth *= 4
        return []

    def _item(self, record: Record) -> Item:
        from agent_memory.retrieval.texts import unpacked

        kept = record.metadata
        vector = unpacked(kept["vector"], self.dimension)
        text = None if "bare" in kept else record.text
        return Item(kept["id"], text, vector, deepcopy(kept["metadata"]))

    def _matches(self, hits: Sequence[Hit], wanted: np.ndarray) -> list[Match]:
        """Score hits by their original vectors, best first."""
        import numpy as np

        from agent_memory.retrieval.texts import cosines, unpacked

        if not hits:
            return []
        kept = [hit.record.metadata for hit in hits]
        rows = np.stack([unpacked(one["vector"], self.dimension) for one in kept])
        found = [
            Match(one["id"], score, None if "bare" in one else hit.record.text, one["metadata"])
            for hit, one, score in zip(hits, kept, cosines(rows, wanted), strict=True)
        ]
        return sorted(found, key=lambda match: (-match.score, match.id))


def _embedder(given: str | Embedder | None, dimension: int | None) -> Embedder | None:
    if given is None and dimension is not None:
        return None
    return open_embedder(given) if given is None or isinstance(given, str) else given


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


def _asked(query: str | Sequence[float] | np.ndarray) -> Item:
    if isinstance(query, str):
        return Item("query", query)
    return Item("query", vector=query)
