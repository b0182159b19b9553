"""Versions and change logs of an owner's records, for caches and incremental readers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TypeVar
from uuid import uuid4

from agent_memory.core.cache import Cache
from agent_memory.core.records import Lease, Record, Scope
from agent_memory.errors import Damaged
from agent_memory.ltm_blocks.base import record_id
from agent_memory.stores.base import RecordStore

T = TypeVar("T")

MOST_RECORDS = 20_000
"""Maximum number of records in a cache by owner."""


def version_of(store: RecordStore, block: str, owner: str) -> str | None:
    """Return the version of an owner's records; None if the owner has no records."""
    trail = trail_of(store, block, owner)
    return None if trail is None else trail.last


def new_version(owner: str) -> Record:
    """Return the record of a new version, to be stored with a change."""
    version_id = version_owner(owner)
    return Record(version_id, version_id, "", 0, 0, uuid4().hex, (), datetime.now(UTC))


def erase_owner(store: RecordStore, block: str, owner: str) -> None:
    """Delete an owner's records and their version."""
    store.delete_records(block, owner=owner)
    store.delete_records(block, owner=version_owner(owner))


def erase(store: RecordStore, block: str, scope: Scope) -> None:
    """Erase a block's records of a session, of its entries after a seq, or of a user."""
    if scope.session_id is None:
        erase_owner(store, block, scope.owner)
        return
    store.delete_records(block, session_id=scope.session_id, after=scope.after, lease=scope.lease)
    own = Scope(None, scope.session_id).owner  # the session may have had no user before
    for owner in {scope.owner, own}:
        renew(store, block, owner, scope.lease)
    if not scope.after:
        store.delete_records(block, owner=version_owner(own), lease=scope.lease)


def renew(store: RecordStore, block: str, owner: str, lease: Lease | None = None) -> None:
    """Invalidate all caches of an owner's records. Call it after erasing some of them."""
    if version_of(store, block, owner) is not None:
        store.put_records(block, [new_version(owner), begun_anew(owner)], lease=lease)


def version_owner(owner: str) -> str:
    """Return the id of the record with an owner's version. The record's `owner` is the same id.

    Owners of other records never have the prefix "version:". The user's id is hashed.
    """
    return f"version:{record_id(owner)}"


_MOST_TOLD = 100  # ids in a change log, which each change rewrites and readers follow one by one

Key = tuple[str, str]
"""A version: the id of the change log, and the id of the last change in the log."""


@dataclass(frozen=True, slots=True)
class Trail:
    """The change log of an owner's records.

    Erasures and imports do not take the writers' lock. A writer could read the log before an
    erasure and write it afterwards, which would hide the erasure. The log's id is therefore a
    separate record, which erasures and imports delete or replace, and writers do not change.
    """

    began: str  # the id of the log; empty if there is none
    last: str  # the id of the last change
    # The last changes, oldest first. Each has the id of the change before it, and the ids of the
    # changed records.
    changes: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @property
    def key(self) -> Key:
        """The current version."""
        return self.began, self.last

    def since(self, key: Key) -> set[str] | None:
        """Return the ids of records changed since a version; None if the log does not show them."""
        began, last = key
        if not began or began != self.began:
            return None
        for at, (before, _) in enumerate(self.changes):
            if before == last:
                return {name for _, ids in self.changes[at:] for name in ids}
        return None


def trail_of(store: RecordStore, block: str, owner: str) -> Trail | None:
    """Return an owner's change log; None if there are no records."""
    version_id = version_owner(owner)
    records = {record.id: record for record in store.records(block, version_id)}
    if version_id not in records:
        return None
    began = records[_began(version_id)].text if _began(version_id) in records else ""
    logged = records[version_id].metadata.get("changes", ())
    changes = tuple((before, tuple(ids)) for before, ids in logged)
    return Trail(began, records[version_id].text, changes)


def went_on(owner: str, trail: Trail | None, changed: Collection[str]) -> tuple[Key, list[Record]]:
    """Return the version after a change of the records `changed`, and the records that store it.

    Args:
        trail: The log, read under the writers' lock.
    """
    renewed = new_version(owner)
    changes = [] if trail is None else [*trail.changes, (trail.last, tuple(changed))]
    while sum(len(ids) for _, ids in changes) > _MOST_TOLD:
        del changes[0]
    logged = {"changes": [[before, list(ids)] for before, ids in changes]}
    records = [replace(renewed, metadata=logged)]
    if trail is not None and trail.began:
        return (trail.began, renewed.text), records
    began = begun_anew(owner)
    return (began.text, renewed.text), [*records, began]


def begun_anew(owner: str) -> Record:
    """Return the record of a new log's id. A new log makes readers read all records again."""
    record = new_version(owner)
    return replace(record, id=_began(record.owner))


def _began(version_id: str) -> str:
    """Return the id of the record that holds a log's id."""
    return f"{version_id}:began"


class Following(Cache[str, tuple[Key, T]]):
    """A cache with one immutable value for each owner, built from all of the owner's records.

    A later change updates the value without reading the other records. Thread-safe.

    Args:
        build: Returns the value of all records.
        change: Returns a value after changes. The changes are records by id; None for a deleted
            record.
        size: Returns the number of records in a value.
        least: Number of values that are never evicted, however large.
    """

    def __init__(
        self,
        build: Callable[[Sequence[Record]], T],
        change: Callable[[T, Mapping[str, Record | None]], T],
        size: Callable[[T], int],
        most: int = MOST_RECORDS,
        least: int = 0,
    ) -> None:
        super().__init__(most, lambda entry: size(entry[1]), least)
        self._build = build
        self._change = change

    def read(self, store: RecordStore, block: str, owner: str) -> T:
        return self.at(store, block, owner, trail_of(store, block, owner))

    def at(self, store: RecordStore, block: str, owner: str, trail: Trail | None) -> T:
        """Return the value at the version of `trail`, or at a later one. Pass a fresh `trail`."""
        if trail is None:
            self.drop(owner)
            return self._build(store.records(block, owner))
        cached = self.find(owner)
        if cached is None or cached[0] != trail.key:
            # the records are read after the version: they may be newer than it, never older
            value = None if cached is None else self._followed(store, block, owner, trail, cached)
            cached = trail.key, self._build(store.records(block, owner)) if value is None else value
            self.put(owner, cached)
        return cached[1]

    def write(
        self,
        owner: str,
        trail: Trail | None,
        value: T,
        changes: Mapping[str, Record | None],
        put: Callable[[Sequence[Record]], None],
    ) -> None:
        """Store changes of records, log them, and update the cache.

        Args:
            trail: The log. The caller holds the writers' lock since reading it.
            value: The value at `trail`.
            changes: Records by id; None for a deleted record.
            put: Stores the changes, and the records of the new version, which it receives.
        """
        key, version = went_on(owner, trail, changes)
        try:
            put(version)
        except BaseException:  # the changes may be stored without the version
            self.drop(owner)
            raise
        if trail is not None:  # without a log, an erasure since `value` was read would be missed
            self.put(owner, (key, self._change(value, changes)))

    def _followed(
        self, store: RecordStore, block: str, owner: str, trail: Trail, cached: tuple[Key, T]
    ) -> T | None:
        """Return the value after the changes since it was cached; None if a full read is needed."""
        ids = trail.since(cached[0])
        if ids is None:
            return None
        try:
            records = {name: store.record(block, name) for name in sorted(ids)}
        except Damaged:  # a full read leaves out damaged records
            return None
        changes = {
            name: record if record is not None and record.owner == owner else None
            for name, record in records.items()
        }
        return self._change(cached[1], changes)


Decoded = Mapping[str, tuple[datetime, T]]
"""Decoded records by id, with their times, oldest first."""


class FollowedRecords(Following[Decoded[T]]):
    """A cache of owners' decoded records. After a change, only changed records are read again."""

    def __init__(self, decode: Callable[[Record], T]) -> None:
        def build(records: Sequence[Record]) -> Decoded[T]:
            return {record.id: (record.created_at, decode(record)) for record in records}

        def change(decoded: Decoded[T], changed: Mapping[str, Record | None]) -> Decoded[T]:
            records = {name: entry for name, entry in decoded.items() if name not in changed}
            records |= build([record for record in changed.values() if record is not None])
            return dict(sorted(records.items(), key=lambda entry: (entry[1][0], entry[0])))

        super().__init__(build, change, len)

    def all(self, store: RecordStore, block: str, owner: str) -> list[T]:
        """Return an owner's decoded records, oldest first."""
        return [decoded for _, decoded in self.read(store, block, owner).values()]
