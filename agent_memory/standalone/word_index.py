"""`WordIndex`: texts by id, found by their words only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy
from datetime import UTC, datetime
from typing import Any

from agent_memory.core.limits import text_of
from agent_memory.core.records import Record
from agent_memory.errors import InvalidInput
from agent_memory.models.embedders.base import NoEmbedder
from agent_memory.retrieval.bm25 import TURN_LENGTH
from agent_memory.standalone.item_index import Item, ItemIndex, Match, check_search
from agent_memory.stores.base import Store, VectorStore

_MADE_WITH = "words"


class WordIndex(ItemIndex):
    """Texts by id, ranked with Okapi BM25, with stems of some twenty languages and without stop
    words. Needs no embedder and no model.

    In a text too short to detect its language, a word counts once for each of its possible stems.

    Only searches for a user find that user's items, and the frequency of words is counted among
    them. `delete_user` of an `AgentMemory` over the same store and namespace erases them.
    Thread-safe. Use it as a context manager, or call `close`.

    Args:
        store: As for `VectorIndex`.
        name: As for `VectorIndex`. A vector index must not have the same name.
        namespace: As for `VectorIndex`.

    Raises:
        ConfigError: The name is invalid, or the kind of store is unknown.
        DimensionMismatch: A vector index has the name.
        StoreError: The store cannot be opened.
    """

    def __init__(
        self,
        store: str | Store | VectorStore = "memory://",
        *,
        name: str = "words",
        namespace: str = "default",
    ) -> None:
        super().__init__(store, name, namespace, (0, _MADE_WITH))

    def __repr__(self) -> str:
        return f"WordIndex(name={self._name!r})"

    def store(
        self,
        items: Item | Mapping[str, Any] | Iterable[Item | Mapping[str, Any]],
        *,
        user_id: str | None = None,
    ) -> None:
        """Store texts. Each replaces the item with the same id.

        Args:
            items: One item or several, as for `VectorIndex.store`, without vectors.
            user_id: The owner; None for shared items.

        Raises:
            InvalidInput: An item has no text, has a vector, or is invalid. Nothing was stored.
            StoreError: The store failed.
        """
        from agent_memory.retrieval.features import Features
        from agent_memory.retrieval.postings import weighted, written

        owner = self._owner(user_id)
        given = [items] if isinstance(items, Item | Mapping) else items
        kept = {item.id: item for item in map(Item.of, given)}
        for item in kept.values():
            if item.text is None or item.vector is not None:
                raise InvalidInput(
                    f"Item {item.id!r} must have a `text` and no `vector`. For vectors, use a "
                    "VectorIndex."
                )
        if not kept:
            return
        words = [weighted(written(item.text or ""), TURN_LENGTH) for item in kept.values()]
        features = Features.of_words(words)
        records = [self._record(owner, item) for item in kept.values()]
        self._vectors.put_vectors(self._block, records, features)

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
            threshold: Only texts with a score above it; None for all.
            user_id: The owner; None for shared items.

        Raises:
            InvalidInput: The query, `top_k` or `threshold` is invalid.
            StoreError: The store failed.
        """
        from agent_memory.retrieval.query import Query

        owner, least = self._owner(user_id), check_search(top_k, threshold)
        question = Query.asked(text_of("query", query), NoEmbedder())
        if not top_k or not question.words:
            return []
        hits = self._vectors.search_vectors(self._block, owner, question, top_k)
        found = [
            Match(kept["id"], score, hit.record.text, deepcopy(kept["metadata"]))
            for hit in hits
            if (score := hit.words) > max(least, 0.0)
            for kept in [hit.record.metadata]
        ]
        return sorted(found, key=lambda match: (-match.score, match.id))[:top_k]

    def _record(self, owner: str, item: Item) -> Record:
        key = self._key(owner, item.id)
        kept = {"id": item.id, "metadata": deepcopy(item.metadata)}
        return Record(key, owner, key, 1, 1, item.text or "", (), datetime.now(UTC), kept)

    def _item(self, record: Record) -> Item:
        kept = record.metadata
        return Item(kept["id"], record.text, None, deepcopy(kept["metadata"]))
