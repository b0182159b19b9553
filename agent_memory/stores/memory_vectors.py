"""The vectors of a `MemoryStore`."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from agent_memory.core.records import Hit, Lease, Record
from agent_memory.errors import DimensionMismatch
from agent_memory.stores.catalogs import Catalog, Part, changed, grouped
from agent_memory.stores.coding import mismatch
from agent_memory.stores.indexes import Indexes, search
from agent_memory.stores.memory_records import MemoryRecords, RecordsById, own_copy
from agent_memory.stores.seals import UNSEALED
from agent_memory.stores.walking import Walk

if TYPE_CHECKING:
    from agent_memory.retrieval.features import Features
    from agent_memory.retrieval.query import Query
    from agent_memory.retrieval.segments import Segment

_PAGE = 200


class _Owned:
    """What an owner has, as `catalogs.SegmentSource`; `numbers` as there."""

    def __init__(self, numbers: Callable[[], Mapping[str, int]]) -> None:
        self.numbers = numbers
        # one value: a signal must not leave half of it
        self._state: tuple[int, Catalog, Mapping[int, bytes]] = (0, Catalog(), {})

    def __bool__(self) -> bool:
        return bool(self._state[1].parts)

    def now(self) -> _Owned:
        """What the owner has now, which no write changes."""
        same = _Owned(self.numbers)
        same._state = self._state
        return same

    @property
    def next(self) -> int:
        """See `Catalog.next`."""
        return self._state[1].next

    def catalog(self) -> tuple[int, str | None] | None:
        """See `SegmentSource.catalog`."""
        version, catalog, _ = self._state
        return (version, catalog.text) if self else None

    def segments(self, names: Sequence[int]) -> Mapping[int, bytes]:
        """See `SegmentSource.segments`."""
        bodies = self._state[2]
        return {name: bodies[name] for name in names if name in bodies}

    def names(self) -> Sequence[int]:
        """See `SegmentSource.names`."""
        return list(self._state[2])

    def change(self, gone: Mapping[int, str], added: Sequence[Segment]) -> None:
        """Take records out, and others in."""
        _, catalog, bodies = self._state
        change = changed(catalog, gone, added, self.segments)
        kept = {name: body for name, body in bodies.items() if name not in change.dropped}
        self._state = secrets.randbits(62), change.catalog, kept | change.written

    def lack(self, count: int) -> None:
        """List as many records, of which nothing is known that they are found by."""
        _, catalog, bodies = self._state
        last = catalog.next + count - 1
        part = Part(secrets.randbits(62), catalog.next, last, count, 0)
        lacking = replace(catalog, next=last + 1, parts=(*catalog.parts, part))
        self._state = secrets.randbits(62), lacking, bodies


class MemoryVectors(MemoryRecords):
    """Facts and vectors in dicts, under one lock with the sessions."""

    def __init__(self) -> None:
        super().__init__()
        self._vectors: dict[str, RecordsById] = {}
        self._numbers: dict[tuple[str, str], int] = {}
        self._owned: dict[tuple[str, str], _Owned] = {}
        self._indexes = Indexes()
        self._seals = UNSEALED
        self._collections: dict[str, tuple[int, str]] = {}
        self._opened: dict[str, tuple[int, str]] = {}

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
        from agent_memory.stores.blobs import checked

        if not records:
            return
        groups = grouped([own_copy(record) for record in records], features)
        with self._lock:
            self._guard(lease)
            self._check(block, checked(block, self._opened.get(block), features))
            self._keep(block, groups)

    def _keep(self, block: str, groups: Mapping[str, tuple[list[Record], list[Segment]]]) -> None:
        """Keep records, as `grouped` gives them, over those with the same ids."""
        collection = self._vectors.setdefault(block, RecordsById())
        ids = {record.id for some, _ in groups.values() for record in some}
        gone = self._taken_out(block, [name for name in ids if name in collection.records])
        for owner in {**groups, **gone}:
            some, segments = groups.get(owner, ([], []))
            owned = self._owned[block, owner] = self._owned_by(block, owner)
            for number, record in enumerate(some, owned.next):
                collection.put(record)
                self._numbers[block, record.id] = number
            self._change(block, owner, gone.get(owner, {}), segments)

    def _keep_lacking(self, block: str, records: Sequence[Record]) -> None:
        """Keep records of which nothing is known that they are found by."""
        collection = self._vectors.setdefault(block, RecordsById())
        for record in records:
            key = (block, record.owner)
            owned = self._owned[key] = self._owned_by(*key)
            self._numbers[block, record.id] = owned.next
            owned.lack(1)
            collection.put(record)

    def _taken_out(self, block: str, ids: Sequence[str]) -> dict[str, dict[int, str]]:
        """Remove records; tells their ids by number, for each owner, whose catalog still has
        them."""
        gone: dict[str, dict[int, str]] = {}
        for name in ids:
            owner = self._vectors[block].remove(name)
            gone.setdefault(owner, {})[self._numbers.pop((block, name))] = name
        return gone

    def _change(
        self, block: str, owner: str, gone: Mapping[int, str], added: Sequence[Segment] = ()
    ) -> None:
        owned = self._owned[block, owner]
        owned.change(gone, added)
        if not owned:
            del self._owned[block, owner]

    def _check(self, block: str, given: tuple[int, str]) -> None:
        stored = self._collections.setdefault(block, given)
        if stored != given:
            raise DimensionMismatch(mismatch(block, stored, given))

    def search_vectors(self, block: str, owner: str, query: Query, limit: int) -> list[Hit]:
        def read(ids: Sequence[str]) -> dict[str, Record]:
            return {record.id: record for _, record in self._by_ids(block, owner, ids)}

        with self._lock:
            owned = self._owned_by(block, owner).now()
        # not under the lock: who holds one that forks wait for takes no other
        index = self._indexes.follow((block, owner), owned, read, self._seals)
        return search(block, index, query, limit, read)

    def _owned_by(self, block: str, owner: str) -> _Owned:
        """What an owner has; something empty that is not kept for who has nothing."""
        return self._owned.get((block, owner)) or _Owned(partial(self._numbers_of, block, owner))

    def _numbers_of(self, block: str, owner: str) -> dict[str, int]:
        with self._lock:
            names = self._vectors.get(block, RecordsById()).by_owner.get(owner, ())
            return {name: self._numbers[block, name] for name in names}

    def _by_ids(self, block: str, owner: str, ids: Sequence[str]) -> list[tuple[int, Record]]:
        """An owner's records by id, those that there are, each with its number."""
        with self._lock:
            records = self._vectors.get(block, RecordsById()).records
            there = [records[name] for name in ids if name in records]
            return [
                (self._numbers[block, one.id], own_copy(one)) for one in there if one.owner == owner
            ]

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
            collection = self._vectors.get(block, RecordsById())
            gone = self._taken_out(block, collection.match(owner, session_id, after))
            for each, numbers in gone.items():
                self._change(block, each, numbers)

    def vector_blocks(self) -> dict[str, tuple[int, str]]:
        with self._lock:
            return dict(self._collections)

    def all_vectors(
        self, block: str, *, session_id: str | None = None
    ) -> Iterator[tuple[list[Record], Features]]:
        with self._lock:
            collection = self._vectors.get(block, RecordsById())
            names = (
                set(collection.records)
                if session_id is None
                else set(collection.by_session.get(session_id, ()))
            )
            owners = {
                owner: sorted(theirs & names, key=lambda name: self._numbers[block, name])
                for owner, theirs in collection.by_owner.items()
            }
        for owner, ids in owners.items():
            walk = Walk(
                block, owner, self._owned_by(block, owner), partial(self._by_ids, block, owner)
            )
            for at in range(0, len(ids), _PAGE):
                yield from walk.page(ids[at : at + _PAGE])

    def clear_vectors(self, block: str) -> None:
        with self._lock:
            collection = self._vectors.pop(block, RecordsById())
            for name in collection.records:
                del self._numbers[block, name]
            for owner in collection.by_owner:
                del self._owned[block, owner]
            self._collections.pop(block, None)
