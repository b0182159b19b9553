"""`VectorIndex`: vectors by id, found by their cosines. No sessions, no words, no blending."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime
from math import inf, isnan
from numbers import Real
from typing import TYPE_CHECKING, Any, Self

from agent_memory.core.ids import check_id
from agent_memory.core.limits import quoted, text_of
from agent_memory.core.records import Hit, Record, Scope
from agent_memory.core.reserved import INDEXES
from agent_memory.errors import ConfigError, DimensionMismatch, InvalidInput, MemoryClosed
from agent_memory.ltm_blocks.base import record_id
from agent_memory.ltm_blocks.registry import register_index
from agent_memory.models.embedders import open_embedder
from agent_memory.models.embedders.base import Embedder
from agent_memory.retrieval.views import VIEWS, depth_for
from agent_memory.standalone.vector_items import Item, Match
from agent_memory.stores import open_store
from agent_memory.stores.base import Store, VectorStore, keeps_records
from agent_memory.stores.qdrant.url import LOCAL

if TYPE_CHECKING:
    import numpy as np

_NAME = re.compile(r"[a-z][a-z0-9_]{0,47}")
_GIVEN = "given"
_EVERYBODYS = "everybody"
_COSINE = VIEWS.index("meaning")


class VectorIndex:
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
        if not _NAME.fullmatch(name):
            raise ConfigError(
                f"An index cannot be named {quoted(name)}. Take at most 48 lower-case letters, "
                "digits and underscores, the first of them a letter."
            )
        self._name, self._block = name, INDEXES.name + name
        self._embedder = _embedder(embedding, dimension)
        self.dimension = _dimension(self._embedder, dimension)
        self._owned = isinstance(store, str)
        self._vectors = _opened(store, namespace) if isinstance(store, str) else store
        self._closed = False
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        return f"VectorIndex(name={self._name!r}, dimension={self.dimension})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

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
        if type(top_k) is not int or top_k < 0:
            raise InvalidInput(f"top_k is {quoted(top_k)}. Give a whole number, 0 or more.")
        if threshold is not None and (not isinstance(threshold, Real) or isnan(threshold)):
            raise InvalidInput(
                f"threshold is {quoted(threshold)}. Give a number, or None for no bound."
            )
        (wanted,) = self._vectors_of([_asked(query)], "The query").values()
        return self._best(owner, wanted, top_k, -inf if threshold is None else float(threshold))

    def get(self, ids: str | Iterable[str], *, user_id: str | None = None) -> list[Item]:
        """The items of these ids that there are, in their order, each with its vector, up to a
        factor.

        Args:
            ids: One or many.
            user_id: Whose they are; None for everybody's.

        Raises:
            UnsupportedOperation: The store is encrypted on a server that searches by itself.
        """
        owner = self._owner(user_id)
        found = (self._read(owner, session_id=self._key(owner, one)) for one in _ids(ids))
        return [item for items in found for item in items]

    def items(self, *, prefix: str = "", user_id: str | None = None) -> Iterator[Item]:
        """All items whose ids begin so, in no order, read some at a time. It looks at the whole
        index.

        Args:
            prefix: What their ids begin with.
            user_id: Whose they are; None for everybody's.

        Raises:
            UnsupportedOperation: As for `get`.
        """
        owner, prefix = self._owner(user_id), text_of("prefix", prefix)
        return (item for item in self._read(owner) if item.id.startswith(prefix))

    def delete_prefix(self, prefix: str, *, user_id: str | None = None) -> None:
        """Forget all items whose ids begin so. Idempotent; see `items`."""
        found = [item.id for item in self.items(prefix=prefix, user_id=user_id)]
        self.delete(found, user_id=user_id)

    def delete(self, ids: str | Iterable[str], *, user_id: str | None = None) -> None:
        """Forget items by their ids, one after the other. Idempotent.

        Args:
            ids: One or many.
            user_id: Whose they are; None for everybody's.
        """
        owner = self._owner(user_id)
        for one in _ids(ids):
            self._vectors.delete_vectors(self._block, session_id=self._key(owner, one))

    def delete_user(self, user_id: str) -> None:
        """Forget all items of a user. Idempotent.

        `AgentMemory.delete_user` does so too, but not on a Qdrant, which it does not know of.
        """
        self._vectors.delete_vectors(self._block, owner=self._owner(user_id))

    def close(self) -> None:
        """Release connections. Idempotent; other calls raise `MemoryClosed` afterwards."""
        if not self._closed:
            self._closed = True
            if self._owned:
                self._vectors.close()

    def _open(self) -> None:
        given = self._embedder.name if self._embedder is not None else _GIVEN
        try:
            self._vectors.open_vectors(self._block, self.dimension + 1, given)  # see `lifted`
        except DimensionMismatch as error:
            longer, model = self._vectors.vector_blocks()[self._block]
            raise DimensionMismatch(
                f"The index {self._name!r} was made with vectors of {model!r} with {longer - 1} "
                f"numbers, and is opened for {given!r} with {self.dimension}. Open it as it was "
                "made, or take another `name`."
            ) from error
        if keeps_records(self._vectors):
            register_index(self._vectors, self._block)

    def _owner(self, user_id: str | None) -> str:
        if self._closed:
            raise MemoryClosed("This index was closed. Open a new VectorIndex.")
        if user_id is None:
            return _EVERYBODYS
        check_id("user_id", user_id)
        return Scope(user_id).owner

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

    def _key(self, owner: str, item_id: str) -> str:
        """The id of an item's record, and of the session that it counts as: stores delete by it."""
        return record_id(self._block, owner, item_id)

    def _best(self, owner: str, wanted: np.ndarray, top_k: int, threshold: float) -> list[Match]:
        from agent_memory.retrieval.cosine import lifted, most_unseen
        from agent_memory.retrieval.features import Query

        question, depth = Query(lifted(wanted)), depth_for(top_k)
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
            unseen = most_unseen(min(hit.scores[_COSINE] for hit in hits))
            if unseen < max(found[top_k - 1].score, threshold):
                return best
            depth *= 4
        return []

    def _read(self, owner: str, session_id: str | None = None) -> Iterator[Item]:
        from agent_memory.retrieval.cosine import unpacked

        for records, _ in self._vectors.all_vectors(self._block, session_id=session_id):
            for record in records:
                if record.owner == owner:
                    kept = record.metadata
                    vector = unpacked(kept["vector"], self.dimension)
                    text = None if "bare" in kept else record.text
                    yield Item(kept["id"], text, vector, deepcopy(kept["metadata"]))

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


def _ids(given: str | Iterable[str]) -> list[str]:
    ids = [given] if isinstance(given, str) else list(given)
    for one in ids:
        check_id("The id of an item", one)
    return ids


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


def _opened(url: str, namespace: str) -> Store | VectorStore:
    if url == LOCAL or url.startswith(("http://", "https://")):
        from agent_memory.stores.qdrant.store import QdrantStore

        return QdrantStore(url, namespace)
    return open_store(url, namespace)


def _asked(query: str | Sequence[float] | np.ndarray) -> Item:
    if isinstance(query, str):
        return Item("query", query)
    return Item("query", vector=query)
