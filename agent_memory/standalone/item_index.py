"""`ItemIndex`, the base class of `VectorIndex` and `WordIndex`, and their items and matches."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Self

from agent_memory.core.limits import check_id, quoted, score_of, text_of
from agent_memory.core.records import Record, Scope
from agent_memory.core.system_collections import INDEXES
from agent_memory.errors import ConfigError, DimensionMismatch, InvalidInput, MemoryClosed
from agent_memory.ltm_blocks.base import record_id
from agent_memory.ltm_blocks.keyed_records import plain_json
from agent_memory.ltm_blocks.registry import register
from agent_memory.stores import open_store
from agent_memory.stores.base import Store, VectorStore, keeps_records
from agent_memory.stores.qdrant.connection import is_qdrant

if TYPE_CHECKING:
    import numpy as np

    from agent_memory.retrieval.features import Features


@dataclass(frozen=True, slots=True)
class Item:
    """An item of an index.

    Attributes:
        id: The id, unique for a user within an index.
        text: The text. It is embedded if there is no vector.
        vector: The vector. Only its direction matters, and its numbers must not all be 0.
        metadata: Data of the caller, as plain JSON.
    """

    id: str
    text: str | None = None
    vector: Sequence[float] | np.ndarray | None = None
    metadata: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, value: object) -> Self:
        """Create an item from an item or a mapping of its fields.

        Raises:
            InvalidInput: The value is neither an item nor a mapping, or a field is invalid.
        """
        if isinstance(value, Mapping):
            fields = list(value)
            try:
                value = cls(**value)
            except TypeError:
                raise InvalidInput(
                    f"The item has the fields {fields!r}. Use id, text, vector and metadata."
                ) from None
        if not isinstance(value, cls):
            raise InvalidInput(
                f"A {type(value).__name__} is not an item. Pass an Item, or a dict with `id` and "
                "`text` or `vector`."
            )
        check_id("The id of an item", value.id)
        if value.text is None and value.vector is None:
            raise InvalidInput(f"Item {value.id!r} has neither `text` nor `vector`. Pass one.")
        if not isinstance(value.text, str | None):
            raise InvalidInput(f"The text of item {value.id!r} is not a string.")
        plain_json([value.text, value.metadata], f"Item {value.id!r}")
        if type(value.metadata) is not dict:
            raise InvalidInput(f"The metadata of item {value.id!r} is not a dict.")
        return value


@dataclass(frozen=True, slots=True)
class Match:
    """A search result.

    Attributes:
        id: The item's id.
        score: In a `VectorIndex` the cosine similarity to the query, from -1 to 1; in a
            `WordIndex` the BM25 score.
        text: The item's text.
        metadata: The item's metadata.
    """

    id: str
    score: float
    text: str | None
    metadata: dict[str, Any]


_NAME = re.compile(r"[a-z][a-z0-9_]{0,47}")
_EVERYBODYS = "everybody"


class ItemIndex(ABC):
    """An index of items by id. An item belongs to a user, or is shared.

    `space` is the dimension and the model of the index's vectors. The store saves both, and
    refuses to open the index with other values.
    """

    def __init__(
        self, store: str | Store | VectorStore, name: str, namespace: str, space: tuple[int, str]
    ) -> None:
        if not _NAME.fullmatch(name):
            raise ConfigError(
                f"An index cannot be named {quoted(name)}. Use at most 48 lower-case letters, "
                "digits and underscores, starting with a letter."
            )
        self._name, self._block = name, INDEXES.name + name
        self._owned = isinstance(store, str)
        self._vectors = _opened(store, namespace) if isinstance(store, str) else store
        self._closed = False
        try:
            self._open(*space)
        except BaseException:
            self.close()
            raise

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
        """Store items. Each item replaces the stored item with the same id.

        If the call fails, nothing is stored. Exception: Qdrant has no transactions, so a failed
        call may have stored some of the items.

        Args:
            items: One item or several, each an `Item` or a dict of its fields. If several have the
                same id, the last one is stored. A `WordIndex` takes texts without vectors.
            user_id: The owner. None means shared items.

        Raises:
            InvalidInput: An item is invalid. Nothing was stored.
            DimensionMismatch: A vector has another dimension. Nothing was stored.
            ModelError: The embedder failed. Nothing was stored.
            StoreError: The store failed.
        """
        owner = self._owner(user_id)
        values = [items] if isinstance(items, Item | Mapping) else items
        by_id = {item.id: item for item in map(Item.of, values)}
        if by_id:
            features, metadata = self._indexed(list(by_id.values()))
            pairs = zip(by_id.values(), metadata, strict=True)
            records = [self._record(owner, item, more) for item, more in pairs]
            self._vectors.put_vectors(self._block, records, features)

    def get(self, ids: str | Iterable[str], *, user_id: str | None = None) -> list[Item]:
        """Return the existing items with these ids, in the ids' order. The vectors may be scaled.

        Args:
            ids: One id or several.
            user_id: The owner. None means shared items.

        Raises:
            UnsupportedOperation: The store is encrypted, on a server that runs searches itself.
        """
        owner = self._owner(user_id)
        groups = (self._read(owner, session_id=self._key(owner, item_id)) for item_id in _ids(ids))
        return [item for items in groups for item in items]

    def items(self, *, prefix: str = "", user_id: str | None = None) -> Iterator[Item]:
        """Iterate over all items whose ids have a prefix, in any order. Reads the whole index.

        Args:
            prefix: The prefix of the ids.
            user_id: The owner. None means shared items.

        Raises:
            UnsupportedOperation: The store is encrypted, on a server that runs searches itself.
        """
        owner, prefix = self._owner(user_id), text_of("prefix", prefix)
        return (item for item in self._read(owner) if item.id.startswith(prefix))

    def delete_prefix(self, prefix: str, *, user_id: str | None = None) -> None:
        """Delete all items whose ids have a prefix. Idempotent. Reads the whole index."""
        ids = [item.id for item in self.items(prefix=prefix, user_id=user_id)]
        self.delete(ids, user_id=user_id)

    def delete(self, ids: str | Iterable[str], *, user_id: str | None = None) -> None:
        """Delete items by id, one after the other. Idempotent."""
        owner = self._owner(user_id)
        for item_id in _ids(ids):
            self._vectors.delete_vectors(self._block, session_id=self._key(owner, item_id))

    def delete_user(self, user_id: str) -> None:
        """Delete all items of a user. Idempotent.

        `AgentMemory.delete_user` also deletes these items, except on Qdrant.
        """
        self._vectors.delete_vectors(self._block, owner=self._owner(user_id))

    def close(self) -> None:
        """Release connections. Idempotent. Other calls raise `MemoryClosed` afterwards."""
        if not self._closed:
            self._closed = True
            if self._owned:
                self._vectors.close()

    @abstractmethod
    def _indexed(self, items: Sequence[Item]) -> tuple[Features, list[dict[str, Any]]]:
        """Return the features of items, and additional metadata of their records."""

    def _record(self, owner: str, item: Item, more: Mapping[str, Any]) -> Record:
        key = self._key(owner, item.id)
        metadata = {"id": item.id, "metadata": deepcopy(item.metadata), **more}
        return Record(key, owner, key, 1, 1, item.text or "", (), datetime.now(UTC), metadata)

    def _item(self, record: Record) -> Item:
        """Return the item of a record, without a vector."""
        metadata = record.metadata
        return Item(metadata["id"], _text(record), None, deepcopy(metadata["metadata"]))

    def _describe(self, dimension: int, model: str) -> str:
        return f"vectors of {model!r} with {dimension} numbers"

    def _open(self, dimension: int, model: str) -> None:
        try:
            self._vectors.open_vectors(self._block, dimension, model)
        except DimensionMismatch as error:
            was = self._vectors.vector_blocks()[self._block]
            raise DimensionMismatch(
                f"The index {self._name!r} was created with {self._describe(*was)}, and is opened "
                f"for {self._describe(dimension, model)}. Open it with the same settings, or use "
                "another `name`."
            ) from error
        if keeps_records(self._vectors):
            register(self._vectors, self._block, "indexes")

    def _owner(self, user_id: str | None) -> str:
        if self._closed:
            raise MemoryClosed("This index was closed. Open a new one.")
        if user_id is None:
            return _EVERYBODYS
        check_id("user_id", user_id)
        return Scope(user_id).owner

    def _key(self, owner: str, item_id: str) -> str:
        """Return an item's record id, which is also the session id by which `delete` selects."""
        return record_id(self._block, owner, item_id)

    def _read(self, owner: str, session_id: str | None = None) -> Iterator[Item]:
        for records, _ in self._vectors.all_vectors(self._block, session_id=session_id):
            yield from (self._item(record) for record in records if record.owner == owner)


def _text(record: Record) -> str | None:
    # a record always has a text: "bare" marks an item without a text
    return None if "bare" in record.metadata else record.text


def match_of(record: Record, score: float) -> Match:
    metadata = record.metadata  # copied below, because stores cache records
    return Match(metadata["id"], score, _text(record), deepcopy(metadata["metadata"]))


def _ids(value: str | Iterable[str]) -> list[str]:
    ids = [value] if isinstance(value, str) else list(value)
    for item_id in ids:
        check_id("The id of an item", item_id)
    return ids


def above(threshold: float | None) -> float:
    """Return the threshold of a search. Minus infinity if it is None."""
    score = score_of("threshold", threshold)
    return float("-inf") if score is None else score


def _opened(url: str, namespace: str) -> Store | VectorStore:
    if is_qdrant(url):
        from agent_memory.stores.qdrant.store import QdrantStore

        return QdrantStore(url, namespace)
    return open_store(url, namespace)
