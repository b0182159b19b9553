"""`RoutedStore`: what some blocks keep, in stores of their own."""

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
    """Keeps the records and vectors of some blocks in other stores, all else in one.

        facts = open_store("sqlite:///facts.db")
        store = RoutedStore(open_store("sqlite:///memory.db"), {"extractive": facts})

    What is deleted of such a block is deleted in both: it may have been kept with all else before.
    A session's lease is of the store that has the session: the others are written to without, and
    what a worker writes there after it lost its own the engine takes back.

    Args:
        inner: The store of all else. `close` closes it alone.
        routes: By the blocks' names, their stores.
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

    def _held(self, block: str, lease: Lease | None) -> Lease | None:
        return None if block in self._routes else lease

    def _both(self, block: str, lease: Lease | None) -> list[tuple[Store, Lease | None]]:
        """Where something of a block may lie, each with the lease that counts there."""
        own = self._routes.get(block)
        return [(self._inner, lease), *([(own, None)] if own is not None else [])]

    def secure_erase(self) -> None:
        for store in (self._inner, *self._others):
            store.secure_erase()

    def put_records(
        self,
        block: str,
        records: Sequence[Record],
        *,
        replacing: tuple[str, int, int] | None = None,
        lease: Lease | None = None,
    ) -> None:
        held = self._held(block, lease)
        self._of(block).put_records(block, records, replacing=replacing, lease=held)

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
        for store, held in self._both(block, lease):
            store.delete_records(
                block,
                record_id=record_id,
                owner=owner,
                session_id=session_id,
                after=after,
                lease=held,
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
        self._of(block).put_vectors(block, records, features, lease=self._held(block, lease))

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
        for store, held in self._both(block, lease):
            store.delete_vectors(block, owner=owner, session_id=session_id, after=after, lease=held)

    def clear_vectors(self, block: str) -> None:
        self._of(block).clear_vectors(block)

    def vector_blocks(self) -> dict[str, tuple[int, str]]:
        found = self._inner.vector_blocks()
        for block, store in self._routes.items():
            there = store.vector_blocks().get(block)
            found = {**{k: v for k, v in found.items() if k != block},
                     **({block: there} if there else {})}  # fmt: skip
        return found

    def all_vectors(
        self, block: str, *, session_id: str | None = None
    ) -> Iterator[tuple[list[Record], Features]]:
        return self._of(block).all_vectors(block, session_id=session_id)
