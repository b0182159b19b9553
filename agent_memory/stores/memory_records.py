"""The facts and vectors of a `MemoryStore`."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from agent_memory.errors import DimensionMismatch
from agent_memory.messages import compact_json
from agent_memory.processes import fork_safe_lock
from agent_memory.records import Lease, Record
from agent_memory.stores.coding import mismatch

if TYPE_CHECKING:
    import numpy as np


class _Shelf:
    """One block's records, findable by id, by owner and by session."""

    def __init__(self) -> None:
        self.records: dict[str, Record] = {}
        self.by_owner: dict[str, set[str]] = {}
        self.by_session: dict[str, set[str]] = {}

    def put(self, record: Record) -> str | None:
        """Keep a record; tells the owner of the one that had its id."""
        before = self.remove(record.id) if record.id in self.records else None
        self.records[record.id] = record
        self.by_owner.setdefault(record.owner, set()).add(record.id)
        self.by_session.setdefault(record.session_id, set()).add(record.id)
        return before

    def remove(self, record_id: str) -> str:
        """Drop a record; tells its owner."""
        record = self.records.pop(record_id)
        for index, key in (
            (self.by_owner, record.owner),
            (self.by_session, record.session_id),
        ):
            index[key].discard(record_id)
            if not index[key]:
                del index[key]
        return record.owner

    def match(
        self, owner: str | None, session_id: str | None, after: int, record_id: str | None = None
    ) -> list[str]:
        """Ids of the records that match all that is given."""
        if owner is None and session_id is None and record_id is None:
            raise ValueError("Name an owner, a session or a record.")
        ids = set(self.records)
        if record_id is not None:
            ids = ids & {record_id}
        if owner is not None:
            ids = ids & self.by_owner.get(owner, set())
        if session_id is not None:
            ids = ids & self.by_session.get(session_id, set())
        return [name for name in ids if not after or self.records[name].last > after]


class MemoryRecords(ABC):
    """Facts and vectors in dicts, under one lock with the sessions."""

    def __init__(self) -> None:
        self._lock = fork_safe_lock()
        self._facts: dict[str, _Shelf] = {}
        self._vectors: dict[str, _Shelf] = {}
        self._rows: dict[tuple[str, str], np.ndarray] = {}
        self._matrices: dict[tuple[str, str], tuple[list[str], np.ndarray]] = {}
        self._collections: dict[str, tuple[int, str]] = {}
        self._opened: dict[str, tuple[int, str]] = {}

    def put_facts(
        self,
        block: str,
        records: Sequence[Record],
        *,
        replacing: tuple[str, int, int] | None = None,
        lease: Lease | None = None,
    ) -> None:
        """See `FactStore.put_facts`."""
        owned = [_own(record) for record in records]
        with self._lock:
            self._guard(lease)
            shelf = self._facts.setdefault(block, _Shelf())
            if replacing is not None:
                session_id, first, last = replacing
                for name in shelf.match(None, session_id, 0):
                    if shelf.records[name].first <= last and shelf.records[name].last >= first:
                        shelf.remove(name)
            for record in owned:
                shelf.put(record)

    def facts(self, block: str, owner: str) -> list[Record]:
        """See `FactStore.facts`."""
        with self._lock:
            shelf = self._facts.get(block, _Shelf())
            found = [shelf.records[name] for name in shelf.by_owner.get(owner, ())]
        return [_own(r) for r in sorted(found, key=lambda r: (r.created_at, r.id))]

    def delete_facts(
        self,
        block: str,
        *,
        record_id: str | None = None,
        owner: str | None = None,
        session_id: str | None = None,
        after: int = 0,
        lease: Lease | None = None,
    ) -> None:
        """See `FactStore.delete_facts`."""
        with self._lock:
            self._guard(lease)
            shelf = self._facts.get(block, _Shelf())
            for name in shelf.match(owner, session_id, after, record_id):
                shelf.remove(name)

    def open_vectors(self, block: str, dimension: int, model: str) -> None:
        """See `VectorStore.open_vectors`."""
        with self._lock:
            self._check(block, (dimension, model))
            self._opened[block] = (dimension, model)

    def put_vectors(
        self,
        block: str,
        records: Sequence[Record],
        vectors: np.ndarray,
        *,
        lease: Lease | None = None,
    ) -> None:
        """See `VectorStore.put_vectors`."""
        import numpy as np

        matrix = np.array(vectors, dtype=np.float32)
        owned = [_own(record) for record in records]
        if not owned:
            return
        if matrix.ndim != 2 or len(matrix) != len(owned):
            raise ValueError("Give one vector for each record.")
        with self._lock:
            self._guard(lease)
            opened = self._opened.get(block)
            if opened is None or opened[0] != matrix.shape[1]:
                known = opened or (0, "no embedder")
                raise DimensionMismatch(mismatch(block, known, (matrix.shape[1], "unnamed")))
            self._check(block, opened)
            shelf = self._vectors.setdefault(block, _Shelf())
            for record, row in zip(owned, matrix, strict=True):
                before = shelf.put(record)
                self._rows[block, record.id] = row
                for owner in {record.owner, before} - {None}:
                    self._matrices.pop((block, str(owner)), None)

    @abstractmethod
    def _guard(self, lease: Lease | None) -> None:
        """Refuse a lease that is not held any more. The sessions' half knows."""

    def _check(self, block: str, given: tuple[int, str]) -> None:
        stored = self._collections.setdefault(block, given)
        if stored != given:
            raise DimensionMismatch(mismatch(block, stored, given))

    def search_vectors(
        self, block: str, owner: str, vector: np.ndarray, limit: int
    ) -> list[tuple[Record, float]]:
        """See `VectorStore.search_vectors`."""
        import numpy as np

        from agent_memory.stores.nearest import nearest

        with self._lock:
            shelf = self._vectors.get(block, _Shelf())
            ids = shelf.by_owner.get(owner)
            if not ids:
                return []
            cached = self._matrices.get((block, owner))
            if cached is None:
                names = sorted(ids)
                cached = names, np.stack([self._rows[block, name] for name in names])
                self._matrices[block, owner] = cached
            if cached[1].shape[1] != len(vector):
                stored = self._collections[block]
                raise DimensionMismatch(mismatch(block, stored, (len(vector), "unnamed")))
            found = nearest(cached[0], cached[1], vector, limit)
            return [(_own(shelf.records[name]), score) for name, score in found]

    def delete_vectors(
        self,
        block: str,
        *,
        owner: str | None = None,
        session_id: str | None = None,
        after: int = 0,
        lease: Lease | None = None,
    ) -> None:
        """See `VectorStore.delete_vectors`."""
        with self._lock:
            self._guard(lease)
            shelf = self._vectors.get(block, _Shelf())
            for name in shelf.match(owner, session_id, after):
                self._matrices.pop((block, shelf.remove(name)), None)
                del self._rows[block, name]

    def clear_vectors(self, block: str) -> None:
        """See `VectorStore.clear_vectors`."""
        with self._lock:
            shelf = self._vectors.pop(block, _Shelf())
            for name in shelf.records:
                del self._rows[block, name]
            for owner in shelf.by_owner:
                self._matrices.pop((block, owner), None)
            self._collections.pop(block, None)


def _own(record: Record) -> Record:
    """A copy whose metadata nobody else holds, as JSON gives it back."""
    return replace(record, metadata=json.loads(compact_json(record.metadata)))
