"""The facts of a `MemoryStore`."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace

from agent_memory.core.messages import compact_json
from agent_memory.core.processes import fork_safe_lock
from agent_memory.core.records import Lease, Record


class RecordsById:
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
        which = []
        if record_id is not None:
            which.append({record_id} & self.records.keys())
        if owner is not None:
            which.append(self.by_owner.get(owner, set()))
        if session_id is not None:
            which.append(self.by_session.get(session_id, set()))
        ids = set.intersection(*which)
        return [name for name in ids if not after or self.records[name].last > after]


class MemoryRecords(ABC):
    """Facts in dicts, under one lock with the sessions."""

    def __init__(self) -> None:
        self._lock = fork_safe_lock()
        self._facts: dict[str, RecordsById] = {}

    @abstractmethod
    def _guard(self, lease: Lease | None) -> None:
        """Refuse a lease that is not held any more. The sessions' half knows."""

    def put_records(
        self,
        block: str,
        records: Sequence[Record],
        *,
        replacing: tuple[str, int, int] | None = None,
        lease: Lease | None = None,
    ) -> None:
        owned = [own_copy(record) for record in records]
        with self._lock:
            self._guard(lease)
            collection = self._facts.setdefault(block, RecordsById())
            if replacing is not None:
                session_id, first, last = replacing
                for name in collection.match(None, session_id, 0):
                    if (
                        collection.records[name].first <= last
                        and collection.records[name].last >= first
                    ):
                        collection.remove(name)
            for record in owned:
                collection.put(record)

    def swap_record(self, block: str, record: Record, last: int | None) -> bool:
        owned = own_copy(record)
        with self._lock:
            collection = self._facts.setdefault(block, RecordsById())
            stored = collection.records.get(record.id)
            if (None if stored is None else stored.last) != last:
                return False
            collection.put(owned)
            return True

    def records(self, block: str, owner: str) -> list[Record]:
        with self._lock:
            collection = self._facts.get(block, RecordsById())
            found = [collection.records[name] for name in collection.by_owner.get(owner, ())]
        return [own_copy(r) for r in sorted(found, key=lambda r: (r.created_at, r.id))]

    def record(self, block: str, record_id: str) -> Record | None:
        with self._lock:
            found = self._facts.get(block, RecordsById()).records.get(record_id)
        return None if found is None else own_copy(found)

    def owners(self, block: str, beginning: str) -> list[str]:
        with self._lock:
            names = list(self._facts.get(block, RecordsById()).by_owner)
        return sorted(name for name in names if name.startswith(beginning))

    def all_records(self) -> Iterator[tuple[str, Record]]:
        with self._lock:
            collections = self._facts.items()
            found = [
                (block, r) for block, collection in collections for r in collection.records.values()
            ]
        return ((block, own_copy(record)) for block, record in found)

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
        with self._lock:
            self._guard(lease)
            collection = self._facts.get(block, RecordsById())
            for name in collection.match(owner, session_id, after, record_id):
                collection.remove(name)


def own_copy(record: Record) -> Record:
    """A copy whose metadata nobody else holds, as JSON gives it back."""
    return replace(record, metadata=json.loads(compact_json(record.metadata)))
