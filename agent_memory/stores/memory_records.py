"""The facts and vectors of a `MemoryStore`."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from agent_memory.core.messages import compact_json
from agent_memory.core.processes import fork_safe_lock
from agent_memory.core.records import Hit, Lease, Record
from agent_memory.errors import DimensionMismatch
from agent_memory.stores.coding import mismatch
from agent_memory.stores.indexes import Indexes, hits, searched

if TYPE_CHECKING:
    from agent_memory.retrieval.features import Features, Query

_PAGE = 200


class _Collection:
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
    """Facts and vectors in dicts, under one lock with the sessions."""

    def __init__(self) -> None:
        self._lock = fork_safe_lock()
        self._facts: dict[str, _Collection] = {}
        self._vectors: dict[str, _Collection] = {}
        self._blobs: dict[tuple[str, str], bytes] = {}
        self._versions: dict[tuple[str, str], int] = {}
        self._version = 0
        self._indexes = Indexes()
        self._collections: dict[str, tuple[int, str]] = {}
        self._opened: dict[str, tuple[int, str]] = {}

    def put_records(
        self,
        block: str,
        records: Sequence[Record],
        *,
        replacing: tuple[str, int, int] | None = None,
        lease: Lease | None = None,
    ) -> None:
        owned = [_own(record) for record in records]
        with self._lock:
            self._guard(lease)
            collection = self._facts.setdefault(block, _Collection())
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
        owned = _own(record)
        with self._lock:
            collection = self._facts.setdefault(block, _Collection())
            stored = collection.records.get(record.id)
            if (None if stored is None else stored.last) != last:
                return False
            collection.put(owned)
            return True

    def records(self, block: str, owner: str) -> list[Record]:
        with self._lock:
            collection = self._facts.get(block, _Collection())
            found = [collection.records[name] for name in collection.by_owner.get(owner, ())]
        return [_own(r) for r in sorted(found, key=lambda r: (r.created_at, r.id))]

    def record(self, block: str, record_id: str) -> Record | None:
        with self._lock:
            found = self._facts.get(block, _Collection()).records.get(record_id)
        return None if found is None else _own(found)

    def owners(self, block: str, beginning: str) -> list[str]:
        with self._lock:
            names = list(self._facts.get(block, _Collection()).by_owner)
        return sorted(name for name in names if name.startswith(beginning))

    def all_records(self) -> Iterator[tuple[str, Record]]:
        with self._lock:
            collections = self._facts.items()
            found = [
                (block, r) for block, collection in collections for r in collection.records.values()
            ]
        return ((block, _own(record)) for block, record in found)

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
            collection = self._facts.get(block, _Collection())
            for name in collection.match(owner, session_id, after, record_id):
                collection.remove(name)

    def open_vectors(self, block: str, dimension: int, model: str) -> None:
        with self._lock:
            self._check(block, (dimension, model))
            self._opened[block] = (dimension, model)

    def put_vectors(
        self,
        block: str,
        records: Sequence[Record],
        features: Features,
        *,
        lease: Lease | None = None,
    ) -> None:
        from agent_memory.stores.blobs import blobs_of, checked

        if not records:
            return
        owned = [_own(record) for record in records]
        blobs = blobs_of(owned, features)
        with self._lock:
            self._guard(lease)
            self._check(block, checked(block, self._opened.get(block), features))
            collection = self._vectors.setdefault(block, _Collection())
            owners = {record.owner for record in owned}
            for record, blob in zip(owned, blobs, strict=True):
                owners.add(collection.put(record) or record.owner)
                self._blobs[block, record.id] = blob
            changed = {owner: self._renew(block, owner) for owner in owners}
        self._indexes.extend(block, changed, [record.id for record in owned], features)

    def _renew(self, block: str, owner: str) -> tuple[int | None, int]:
        """Give an owner's vectors a new version; tells the one before, and the new one."""
        self._version += 1
        before = self._versions.get((block, owner))
        self._versions[block, owner] = self._version
        return before, self._version

    @abstractmethod
    def _guard(self, lease: Lease | None) -> None:
        """Refuse a lease that is not held any more. The sessions' half knows."""

    def _check(self, block: str, given: tuple[int, str]) -> None:
        stored = self._collections.setdefault(block, given)
        if stored != given:
            raise DimensionMismatch(mismatch(block, stored, given))

    def search_vectors(self, block: str, owner: str, query: Query, depth: int) -> list[Hit]:
        with self._lock:
            version = self._versions.get((block, owner))
            index = self._indexes.get((block, owner), version)
            if index is None:
                collection = self._vectors.get(block, _Collection())
                ids = sorted(collection.by_owner.get(owner, ()))
                blobs = [self._blobs[block, name] for name in ids]
                index = self._indexes.load((block, owner), version, ids, blobs)
        found = searched(block, index, query, depth)
        with self._lock:
            records = self._vectors.get(block, _Collection()).records
            there = {name: _own(records[name]) for name in found.ids if name in records}
        there = {name: one for name, one in there.items() if one.owner == owner}
        return hits(found, {**(query.beside.records if query.beside else {}), **there})

    def delete_vectors(
        self,
        block: str,
        *,
        owner: str | None = None,
        session_id: str | None = None,
        after: int = 0,
        lease: Lease | None = None,
    ) -> None:
        with self._lock:
            self._guard(lease)
            collection = self._vectors.get(block, _Collection())
            for name in collection.match(owner, session_id, after):
                self._renew(block, collection.remove(name))
                del self._blobs[block, name]

    def vector_blocks(self) -> dict[str, tuple[int, str]]:
        with self._lock:
            return dict(self._collections)

    def all_vectors(
        self, block: str, *, session_id: str | None = None
    ) -> Iterator[tuple[list[Record], Features]]:
        from agent_memory.stores.blobs import features_of

        with self._lock:
            collection = self._vectors.get(block, _Collection())
            ids = (
                collection.records
                if session_id is None
                else collection.by_session.get(session_id, ())
            )
            found = [(collection.records[name], self._blobs[block, name]) for name in ids]
        for at in range(0, len(found), _PAGE):
            records, blobs = zip(*found[at : at + _PAGE], strict=True)
            yield [_own(record) for record in records], features_of(blobs)

    def clear_vectors(self, block: str) -> None:
        with self._lock:
            collection = self._vectors.pop(block, _Collection())
            for name in collection.records:
                del self._blobs[block, name]
            for owner in collection.by_owner:
                self._renew(block, owner)
            self._collections.pop(block, None)


def _own(record: Record) -> Record:
    """A copy whose metadata nobody else holds, as JSON gives it back."""
    return replace(record, metadata=json.loads(compact_json(record.metadata)))
