"""The base of stores that wrap another store."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from agent_memory.core.idempotency import Appended, KeptKey, Once
from agent_memory.core.records import Draft, Entry, Head, Hit, Lag, Lease, Record
from agent_memory.stores.base import Counts, Store, VectorStore

if TYPE_CHECKING:
    from agent_memory.retrieval.features import Features
    from agent_memory.retrieval.query import Query
    from agent_memory.stores.encrypted.keys import Keys


class VectorStoreWrapper:
    """Hands every call on to another vector store, as `VectorStore` describes it.

    Args:
        inner: The other store. `close` closes it too.
    """

    def __init__(self, inner: VectorStore) -> None:
        self._vectors = inner

    def open_vectors(self, block: str, dimension: int, model: str) -> None:
        self._vectors.open_vectors(block, dimension, model)

    def put_vectors(
        self,
        block: str,
        records: Sequence[Record],
        features: Features,
        *,
        lease: Lease | None = None,
    ) -> None:
        self._vectors.put_vectors(block, records, features, lease=lease)

    def search_vectors(self, block: str, owner: str, query: Query, limit: int) -> list[Hit]:
        return self._vectors.search_vectors(block, owner, query, limit)

    def delete_vectors(
        self,
        block: str,
        *,
        owner: str | None = None,
        session_id: str | None = None,
        after: int = 0,
        lease: Lease | None = None,
    ) -> None:
        self._vectors.delete_vectors(
            block, owner=owner, session_id=session_id, after=after, lease=lease
        )

    def clear_vectors(self, block: str) -> None:
        self._vectors.clear_vectors(block)

    def vector_blocks(self) -> dict[str, tuple[int, str]]:
        return self._vectors.vector_blocks()

    def all_vectors(
        self, block: str, *, session_id: str | None = None
    ) -> Iterator[tuple[list[Record], Features]]:
        return self._vectors.all_vectors(block, session_id=session_id)

    def close(self) -> None:
        self._vectors.close()


class StoreWrapper(VectorStoreWrapper):
    """Hands every call on to another store, as `Store` describes it.

    Args:
        inner: The other store. `close` closes it too.
    """

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self._inner = inner

    @property
    def remote(self) -> bool:
        return self._inner.remote

    @property
    def signing_keys(self) -> Keys | None:
        """The keys that sign receipts: those with which the store encrypts."""
        return getattr(self._inner, "signing_keys", None)

    def append(
        self,
        session_id: str,
        drafts: Sequence[Draft],
        user_id: str | None = None,
        *,
        within: float = 0.0,
    ) -> Head:
        return self._inner.append(session_id, drafts, user_id, within=within)

    def append_once(
        self,
        session_id: str,
        drafts: Sequence[Draft],
        once: Once,
        user_id: str | None = None,
        *,
        within: float = 0.0,
    ) -> Appended:
        return self._inner.append_once(session_id, drafts, once, user_id, within=within)

    def keys(self, session_id: str, names: Collection[str] | None = None) -> list[KeptKey]:
        return self._inner.keys(session_id, names)

    def put_keys(
        self, session_id: str, keys: Sequence[KeptKey], *, lease: Lease | None = None
    ) -> None:
        self._inner.put_keys(session_id, keys, lease=lease)

    def head(self, session_id: str) -> Head | None:
        return self._inner.head(session_id)

    def existing(self, session_ids: Collection[str]) -> set[str]:
        return self._inner.existing(session_ids)

    def read(self, session_id: str, *, after: int = 0, limit: int | None = None) -> list[Entry]:
        return self._inner.read(session_id, after=after, limit=limit)

    def pick(self, session_id: str, seqs: Sequence[int]) -> list[Entry]:
        return self._inner.pick(session_id, seqs)

    def lagging(
        self, block: str, *, user_id: str | None = None, session_id: str | None = None
    ) -> list[Lag]:
        return self._inner.lagging(block, user_id=user_id, session_id=session_id)

    def tails(
        self, block: str, session_ids: Collection[str], *, before: int, limit: int
    ) -> list[Entry]:
        return self._inner.tails(block, session_ids, before=before, limit=limit)

    def move(self, head: Head, *, lease: Lease | None = None) -> Head | None:
        return self._inner.move(head, lease=lease)

    def rewrite(
        self,
        head: Head,
        after: int,
        entries: Sequence[Entry] = (),
        *,
        lease: Lease | None = None,
    ) -> Head | None:
        return self._inner.rewrite(head, after, entries, lease=lease)

    def lease(self, session_id: str, owner: str, seconds: float, *, renew: bool = False) -> bool:
        return self._inner.lease(session_id, owner, seconds, renew=renew)

    def release(self, session_id: str, owner: str) -> None:
        self._inner.release(session_id, owner)

    def lock(self, name: str, owner: str, seconds: float, *, renew: bool = False) -> bool:
        return self._inner.lock(name, owner, seconds, renew=renew)

    def unlock(self, name: str, owner: str) -> None:
        self._inner.unlock(name, owner)

    def due(self, limit: int = 100) -> list[Head]:
        return self._inner.due(limit)

    def schedule(self, head: Head, seconds: float | None) -> bool:
        return self._inner.schedule(head, seconds)

    def schedule_all(self) -> None:
        self._inner.schedule_all()

    def delete(self, session_id: str, *, lease: Lease | None = None) -> None:
        self._inner.delete(session_id, lease=lease)

    def secure_erase(self) -> None:
        self._inner.secure_erase()

    def sync(self) -> None:
        self._inner.sync()

    def sessions(
        self, *, user_id: str | None = None, limit: int = 100, after: str | None = None
    ) -> list[Head]:
        return self._inner.sessions(user_id=user_id, limit=limit, after=after)

    def counts(self) -> Counts:
        return self._inner.counts()

    def put_records(
        self,
        block: str,
        records: Sequence[Record],
        *,
        replacing: tuple[str, int, int] | None = None,
        lease: Lease | None = None,
    ) -> None:
        self._inner.put_records(block, records, replacing=replacing, lease=lease)

    def swap_record(self, block: str, record: Record, last: int | None) -> bool:
        return self._inner.swap_record(block, record, last)

    def records(self, block: str, owner: str) -> list[Record]:
        return self._inner.records(block, owner)

    def record(self, block: str, record_id: str) -> Record | None:
        return self._inner.record(block, record_id)

    def owners(self, block: str, beginning: str) -> list[str]:
        return self._inner.owners(block, beginning)

    def all_records(self) -> Iterator[tuple[str, Record]]:
        return self._inner.all_records()

    def delete_records(
        self,
        block: str,
        *,
        record_id: str | None = None,
        owner: str | None = None,
        session_id: str | None = None,
        after: int = 0,
        lease: Lease | None = None,
    ) -> None:
        self._inner.delete_records(
            block, record_id=record_id, owner=owner, session_id=session_id, after=after, lease=lease
        )
