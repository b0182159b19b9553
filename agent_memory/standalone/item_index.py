"""`ItemIndex`: what indexes have in common: items by id, in a store, of users or everybody's."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from math import isnan
from numbers import Real
from typing import Self

from agent_memory.core.ids import check_id
from agent_memory.core.limits import quoted, text_of
from agent_memory.core.records import Record, Scope
from agent_memory.core.reserved import INDEXES
from agent_memory.errors import ConfigError, DimensionMismatch, InvalidInput, MemoryClosed
from agent_memory.ltm_blocks.base import record_id
from agent_memory.ltm_blocks.registry import register_index
from agent_memory.standalone.vector_items import Item
from agent_memory.stores import open_store
from agent_memory.stores.base import Store, VectorStore, keeps_records
from agent_memory.stores.qdrant.url import is_qdrant

_NAME = re.compile(r"[a-z][a-z0-9_]{0,47}")
_EVERYBODYS = "everybody"


class ItemIndex(ABC):
    """Items by id. A user's are seen by searches for that user only, and erased by `delete_user` of
    an `AgentMemory` over the same store and namespace. Share an index between threads; use it as a
    context manager, or call `close`. Nothing is read from the environment but a provider's keys.

    Args:
        store: A URL as in `AgentMemoryConfig`, or the address of a Qdrant server, or its ":memory:"
            (extra `qdrant`); or a store that is open, which stays so.
        name: Tells it from other indexes in the store: lower-case letters, digits and underscores.
        namespace: Whose items, where `store` is a URL or an address.
        made_with: The numbers of a vector, and what it is of, as the store is to remember them.

    Raises:
        ConfigError: The name is not usable; no store is of that kind.
        DimensionMismatch: The index was made in another way.
        StoreError: The store cannot be opened.
    """

    def __init__(
        self,
        store: str | Store | VectorStore,
        name: str,
        namespace: str,
        made_with: tuple[int, str],
    ) -> None:
        if not _NAME.fullmatch(name):
            raise ConfigError(
                f"An index cannot be named {quoted(name)}. Take at most 48 lower-case letters, "
                "digits and underscores, the first of them a letter."
            )
        self._name, self._block = name, INDEXES.name + name
        self._owned = isinstance(store, str)
        self._vectors = _opened(store, namespace) if isinstance(store, str) else store
        self._closed = False
        try:
            self._open(*made_with)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def get(self, ids: str | Iterable[str], *, user_id: str | None = None) -> list[Item]:
        """The items of these ids that there are, in their order; a vector up to a factor.

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

    @abstractmethod
    def _item(self, record: Record) -> Item:
        """What a record keeps."""

    def _told(self, dimension: int, model: str) -> str:
        """How the index is made, or was, for an error."""
        return f"vectors of {model!r} with {dimension} numbers"

    def _open(self, dimension: int, model: str) -> None:
        try:
            self._vectors.open_vectors(self._block, dimension, model)
        except DimensionMismatch as error:
            was = self._vectors.vector_blocks()[self._block]
            raise DimensionMismatch(
                f"The index {self._name!r} was made with {self._told(*was)}, and is opened for "
                f"{self._told(dimension, model)}. Open it as it was made, or take another `name`."
            ) from error
        if keeps_records(self._vectors):
            register_index(self._vectors, self._block)

    def _owner(self, user_id: str | None) -> str:
        if self._closed:
            raise MemoryClosed("This index was closed. Open a new one.")
        if user_id is None:
            return _EVERYBODYS
        check_id("user_id", user_id)
        return Scope(user_id).owner

    def _key(self, owner: str, item_id: str) -> str:
        """The id of an item's record, and of the session that it counts as: stores delete by it."""
        return record_id(self._block, owner, item_id)

    def _read(self, owner: str, session_id: str | None = None) -> Iterator[Item]:
        for records, _ in self._vectors.all_vectors(self._block, session_id=session_id):
            yield from (self._item(record) for record in records if record.owner == owner)


def _ids(given: str | Iterable[str]) -> list[str]:
    ids = [given] if isinstance(given, str) else list(given)
    for one in ids:
        check_id("The id of an item", one)
    return ids


def check_search(top_k: object, threshold: object) -> float:
    """The bound of a search.

    Raises:
        InvalidInput: One of the two is not usable.
    """
    if type(top_k) is not int or top_k < 0:
        raise InvalidInput(f"top_k is {quoted(top_k)}. Give a whole number, 0 or more.")
    if threshold is not None and (not isinstance(threshold, Real) or isnan(threshold)):
        raise InvalidInput(
            f"threshold is {quoted(threshold)}. Give a number, or None for no bound."
        )
    return float("-inf") if threshold is None else float(threshold)


def _opened(url: str, namespace: str) -> Store | VectorStore:
    if is_qdrant(url):
        from agent_memory.stores.qdrant.store import QdrantStore

        return QdrantStore(url, namespace)
    return open_store(url, namespace)
