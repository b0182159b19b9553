"""`RoutedStore`: the records of some blocks, in stores of their own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from agent_memory.core.records import Hit, Lease, Record
from agent_memory.stores.base import Store
from agent_memory.stores.wrapper import StoreWrapper

if TYPE_CHECKING:
    from agent_memory.retrieval.features import Features
    from agent_memory.retrieval.query import Query


class RoutedStore(StoreWrapper):
    """Stores the records and vectors of some blocks in other stores, and all other data in one.

        facts = open_store("sqlite:///facts.db")
        store = RoutedStore(open_store("sqlite:///memory.db"), {"extractive": facts})

    Records of such a block are deleted in both stores, because earlier ones may be in the common
    store. A session's lease belongs to the store of the session. The others are written to without
    a lease, and the engine reverts writes of a worker that lost it.

    Args:
        inner: The store of all other data. `close` closes only this one.
        routes: The stores of blocks, by name.
    """

    def __init__(self, inner: Store, routes: Mapping[str, Store]) -> None:
        super().__init__(inner)
        self._routes = dict(routes)

    @property
    def remote(self) -> bool:
        return self._inner.remote or any(store.remote for store in self._others)

    @property
    def _others(self) -> list[Store]:
        return list({id(store): store for store in self._routes.values()}.values())

    def _of(self, block: str) -> Store:
        return self._routes.get(block, self._inner)

    def _lease_for(self, block: str, lease: Lease | None) -> Lease | None:
        return None if block in self._routes else lease

    def _both(self, block: str, lease: Lease | None) -> list[tuple[Store, Lease | None]]:
        """Return the stores that may hold a block's data, each with its lease."""
        own = self._routes.get(block)
        return [(self._inner, lease), *([(own, None)] if own is not None else [])]

    def secure_erase(self) -> None:
        for store in (self._inner, *self._others):
            store.secure_erase()

    def sync(self) -> None:
        for store in (self._inner, *self._others):
            store.sync()

    def put_records(
        self,
        block: str,
        records: Sequence[Record],
        *,
        replacing: tuple[str, int, int] | None = None,
        lease: Lease | None = None,
    ) -> None:
        own_lease = self._lease_for(block, lease)
        self._of(block).put_records(block, records, replacing=replacing, lease=own_lease)

    def swap_record(self, block: str, record: Record, last: int | None) -> bool:
        return self._of(block).swap_record(block, record, last)

    def records(self, block: str, owner: str) -> list[Record]:
        return self._of(block).records(block, owner)

    def record(self, block: str, record_id: str) -> Record | None:
        return self._of(block).record(block, record_id)

    def owners(self, block: str, beginning: str) -> list[str]:
        return self._of(block).owners(block, beginning)

    def all_records(self) -> Iterator[tuple[str, Record]]:
        return chain(*(store.all_records() for store in (self._inner, *self._others)))

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
        for store, own_lease in self._both(block, lease):
            store.delete_records(
                block,
                record_id=record_id,
                owner=owner,
                session_id=session_id,
                after=after,
                lease=own_lease,
            )

    def open_vectors(self, block: str, dimension: int, model: str) -> None:
        self._of(block).open_vectors(block, dimension, model)

    def put_vectors(
        self,
        block: str,
        records: Sequence[Record],
        features: Features,
        *,
        lease: Lease | None = None,
    ) -> None:
        self._of(block).put_vectors(block, records, features, lease=self._lease_for(block, lease))

    def search_vectors(self, block: str, owner: str, query: Query, limit: int) -> list[Hit]:
        return self._of(block).search_vectors(block, owner, query, limit)

    def delete_vectors(
        self,
        block: str,
        *,
        owner: str | None = None,
        session_id: str | None = None,
        after: int = 0,
        lease: Lease | None = None,
    ) -> None:
        for store, own_lease in self._both(block, lease):
            store.delete_vectors(
                block, owner=owner, session_id=session_id, after=after, lease=own_lease
            )

    def clear_vectors(self, block: str) -> None:
        self._of(block).clear_vectors(block)

    def vector_blocks(self) -> dict[str, tuple[int, str]]:
        embeddings = self._inner.vector_blocks()
        for block, store in self._routes.items():
            own = store.vector_blocks().get(block)
            embeddings = {**{k: v for k, v in embeddings.items() if k != block},
                     **({block: own} if own else {})}  # fmt: skip
        return embeddings

    def all_vectors(
        self, block: str, *, session_id: str | None = None
    ) -> Iterator[tuple[list[Record], Features]]:
        return self._of(block).all_vectors(block, session_id=session_id)
