"""`VectorIndex`: vectors by id, found by their cosines. No sessions, no words, no blending."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from agent_memory.core.limits import quoted
from agent_memory.core.records import Hit, Record
from agent_memory.errors import ConfigError, DimensionMismatch, InvalidInput
from agent_memory.models.embedders import open_embedder
from agent_memory.models.embedders.base import Embedder
from agent_memory.standalone.item_index import ItemIndex, check_search
from agent_memory.standalone.vector_items import Item, Match
from agent_memory.stores.base import Store, VectorStore

if TYPE_CHECKING:
    import numpy as np

_NAME = re.compile(r"[a-z][a-z0-9_]{0,47}")
_GIVEN = "given"
_EVERYBODYS = "everybody"
_LEAST_DEPTH = 50


class VectorIndex(ItemIndex):
    """Items by id, found by the cosine of their vectors with a query's, and by nothing else.

    A user's items are seen by searches for that user only, and erased by `delete_user` of an
    `AgentMemory` over the same store and namespace. Share an index between threads; use it as a
    context manager, or call `close`. Nothing is read from the environment but a provider's keys.

    Args:
        store: A URL as in `AgentMemoryConfig`, or the address of a Qdrant server, or its ":memory:"
            (extra `qdrant`); or a store that is open, which stays so.
        name: Tells it from other indexes in the store: lower-case letters, digits and underscores.
        embedding: An embedding model as in `AgentMemoryConfig`, or an embedder of your own. None is
            the local one; with a `dimension` none at all, and every item is given with its vector.
        dimension: Numbers in a vector; None takes what the embedder gives.
        namespace: Whose items, where `store` is a URL or an address.

    Raises:
        ConfigError: The name is not usable; there is neither an embedder nor a dimension; an extra
            is missing; no store is of that kind.
        DimensionMismatch: The embedder gives another dimension, or the index was made with another
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
        """Keep items, each in place of the one that had its id.

        All of them or none; but Qdrant has no transactions, and may keep some if it fails half-way.

        Args:
            items: One or many, as `Item` or as its fields in a dict. Of those with the same id the
                last counts.
            user_id: Whose they are; None for everybody's.

        Raises:
            InvalidInput: An item is not usable; nothing was stored.
            DimensionMismatch: A vector has another dimension; nothing was stored.
            ModelError: The embedder failed; nothing was stored.
            StoreError: The store failed.
        """
        import numpy as np

        from agent_memory.retrieval.cosine import lifted
        from agent_memory.retrieval.features import Features

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
        """The items most like a query, best first; of equals the lowest id first.

        Args:
            query: A text, which is embedded, or a vector.
            top_k: So many at most; there may be fewer.
            threshold: Only those whose cosine is above it; None sets no bound.
            user_id: Whose items; None for everybody's.

        Raises:
            InvalidInput: The query, `top_k` or `threshold` is not usable.
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
        """The vector of each, by its id; texts are embedded together."""
        from agent_memory.retrieval.cosine import vector_of

        rows: dict[str, Any] = {one.id: one.vector for one in items if one.vector is not None}
        texts = {one.id: one.text or "" for one in items if one.vector is None}
        if texts and self._embedder is None:
            raise InvalidInput(
                f"The index {self._name!r} has no embedder for texts. Give vectors, or open it "
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
        from agent_memory.retrieval.cosine import packed

        key = self._key(owner, item.id)
        own = deepcopy(item.metadata)
        kept: dict[str, Any] = {"id": item.id, "vector": packed(vector), "metadata": own}
        if item.text is None:
            kept["bare"] = True  # a record has a text in any case
        return Record(key, owner, key, 1, 1, item.text or "", (), datetime.now(UTC), kept)

    def _best(self, owner: str, wanted: np.ndarray, top_k: int, threshold: float) -> list[Match]:
        from agent_memory.retrieval.cosine import lifted, most_unseen
        from agent_memory.retrieval.query import Query

        question, depth = Query(lifted(wanted)), max(_LEAST_DEPTH, 2 * top_k)
        while top_k:
            hits = self._vectors.search_vectors(self._block, owner, question, depth)
            found = self._matches(hits, wanted)
            best = [
                replace(one, metadata=deepcopy(one.metadata))  # stores keep what they have read
                for one in found[:top_k]
                if one.score > threshold
            ]
            if len(hits) < depth:
                return best
            # single precision may have cut off one that is as good as the last of these
            unseen = most_unseen(min(hit.cosine for hit in hits))
            if unseen < max(found[top_k - 1].score, threshold):
                return best
            depth *= 4
        return []

    def _item(self, record: Record) -> Item:
        from agent_memory.retrieval.cosine import unpacked

        kept = record.metadata
        vector = unpacked(kept["vector"], self.dimension)
        text = None if "bare" in kept else record.text
        return Item(kept["id"], text, vector, deepcopy(kept["metadata"]))

    def _matches(self, hits: Sequence[Hit], wanted: np.ndarray) -> list[Match]:
        """What was found, best first, by the vectors as they were given."""
        import numpy as np

        from agent_memory.retrieval.cosine import cosines, unpacked

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
        raise ConfigError(f"dimension is {quoted(wanted)}. Give a whole number above 0.")
    gives = wanted if embedder is None else embedder.dimension
    if not gives:
        raise ConfigError(
            "There is no embedder to tell the dimension. Give `dimension` and a vector with each "
            'item, or an `embedding`; pip install "agent-memory[local]" for the local one.'
        )
    if wanted not in (None, gives):
        raise DimensionMismatch(
            f"The index is to have vectors of {wanted} numbers, but the embedder gives {gives}. "
            "Change `dimension` or `embedding`."
        )
    return gives


def _asked(query: str | Sequence[float] | np.ndarray) -> Item:
    if isinstance(query, str):
        return Item("query", query)
    return Item("query", vector=query)
