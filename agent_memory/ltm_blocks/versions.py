"""Versions of an owner's records, and caches of values that are valid for one version."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TypeVar
from uuid import uuid4

from agent_memory.core.cache import Cache
from agent_memory.core.records import Lease, Record, Scope
from agent_memory.ltm_blocks.base import record_id
from agent_memory.stores.base import RecordStore

T = TypeVar("T")

MOST_RECORDS = 20_000
"""Maximum number of records in a cache by owner."""

Version = tuple[str, str]
"""The id of the epoch, which is empty if there is none, and the id of the last change.

Writers take a lock, but erasures and imports do not. A writer could read the records before an
erasure and write its own change afterwards, and would then cache erased records. Erasures and
imports therefore begin a new epoch, which writers do not change.
"""


def version_of(store: RecordStore, block: str, owner: str) -> Version | None:
    """Return the version of an owner's records; None if the owner has no records."""
    name = version_owner(owner)
    texts = {record.id: record.text for record in store.records(block, name)}
    return (texts.get(_epoch_id(name), ""), texts[name]) if name in texts else None


def new_version(owner: str) -> Record:
    """Return the record of a new version, to be stored with a change."""
    version_id = version_owner(owner)
    return Record(version_id, version_id, "", 0, 0, uuid4().hex, (), datetime.now(UTC))


def new_epoch(owner: str) -> Record:
    """Return the record of a new epoch, to be stored with an erasure or an import."""
    record = new_version(owner)
    return replace(record, id=_epoch_id(record.owner))


def _epoch_id(version_id: str) -> str:
    return f"{version_id}:began"


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
    """Invalidate all caches of an owner's records. Call it after erasing some of these records."""
    if version_of(store, block, owner) is not None:
        store.put_records(block, [new_version(owner), new_epoch(owner)], lease=lease)


def version_owner(owner: str) -> str:
    """Return the id of the record with an owner's version. The record's `owner` is the same id.

    Owners of other records never have the prefix "version:". The user's id is hashed.
    """
    return f"version:{record_id(owner)}"


class Versioned(Cache[str, tuple[Version, T]]):
    """A cache with one immutable value for each owner, built from all of the owner's records.

    Thread-safe. `build` gets the records sorted by time. `size` returns the number of records in a
    value. `least` is the number of values that are never evicted, however large.
    """

    def __init__(
        self,
        build: Callable[[Sequence[Record]], T],
        size: Callable[[T], int],
        most: int = MOST_RECORDS,
        least: int = 0,
    ) -> None:
        super().__init__(most, lambda entry: size(entry[1]), least)
        self._build = build

    def read(self, store: RecordStore, block: str, owner: str) -> T:
        return self.at(store, block, owner, version_of(store, block, owner))

    def at(self, store: RecordStore, block: str, owner: str, version: Version | None) -> T:
        """Return the value at `version` or later. The caller has just read `version`."""
        cached = self.find(owner)
        if version is None:
            self.drop(owner)
        elif cached is not None and cached[0] == version:
            return cached[1]
        # the version is read first, so the records may be newer than the version, but never older
        value = self._build(store.records(block, owner))
        if version is not None:
            self.put(owner, (version, value))
        return value

    def write(
        self, owner: str, before: Version | None, value: T, put: Callable[[Sequence[Record]], None]
    ) -> None:
        """Store a change of records, and cache the value after it.

        The caller has held the writers' lock since it read the version `before`. `value` is the
        value after the change, and `put` stores the change with the records of the new version.
        """
        epoch, version = before[0] if before is not None else "", new_version(owner)
        try:
            put([version] if epoch else [version, new_epoch(owner)])
        except BaseException:  # the change may be stored without the version
            self.drop(owner)
            raise
        if epoch:  # without an epoch, an erasure since `before` would be missed
            self.put(owner, ((epoch, version.text), value))
