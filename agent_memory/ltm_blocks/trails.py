"""A version of an owner's records that tells what changed lately, so that others read only that."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Generic, TypeVar

from agent_memory.core.records import Record
from agent_memory.errors import Damaged
from agent_memory.ltm_blocks.versions import Remembering, new_version, version_owner
from agent_memory.stores.base import RecordStore

T = TypeVar("T")

_MOST_TOLD = 100  # ids: each is read by itself, and all are written with every change

Key = tuple[str, str]
"""One version: what began the trail, and the last change."""


@dataclass(frozen=True, slots=True)
class Trail:
    """What is told of an owner's records.

    Who erases or imports records does not wait for who writes, and may come between a writer's look
    at the trail and his change, which then would hide what he did. So the beginning of a trail has
    a record of its own: any erasure or import takes it away or begins another, and a writer leaves
    the one that he has found.

    Attributes:
        began: Names the trail; empty where nothing is followed.
        last: Names the last change.
        changes: Of the last changes, oldest first: from which one, and ids of what changed.
    """

    began: str
    last: str
    changes: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @property
    def key(self) -> Key:
        """Another one after each change."""
        return self.began, self.last

    def since(self, key: Key) -> set[str] | None:
        """The ids of what changed since; None where that is not known."""
        began, last = key
        if not began or began != self.began:
            return None
        for at, (before, _) in enumerate(self.changes):
            if before == last:
                return {one for _, ids in self.changes[at:] for one in ids}
        return None


def trail_of(store: RecordStore, block: str, owner: str) -> Trail | None:
    """An owner's trail; None where there are no records."""
    of = version_owner(owner)
    found = {record.id: record for record in store.records(block, of)}
    if of not in found:
        return None
    began = found[_began(of)].text if _began(of) in found else ""
    told = found[of].metadata.get("changes", ())
    changes = tuple((before, tuple(ids)) for before, ids in told)
    return Trail(began, found[of].text, changes)


def went_on(
    owner: str, trail: Trail | None, changed: Collection[str]
) -> tuple[Trail, list[Record]]:
    """A trail with one more change, and the records to be kept with it.

    Args:
        owner: Whose it is.
        trail: As it was read, by who alone changes the owner's records.
        changed: Ids of the records that are written or taken away.
    """
    renewed = new_version(owner)
    began = begun_anew(owner)
    changes = [] if trail is None else [*trail.changes, (trail.last, tuple(changed))]
    while sum(len(ids) for _, ids in changes) > _MOST_TOLD:
        del changes[0]
    told = {"changes": [[before, list(ids)] for before, ids in changes]}
    records = [replace(renewed, metadata=told)]
    if trail is None or not trail.began:
        records.append(began)
        return Trail(began.text, renewed.text, tuple(changes)), records
    return Trail(trail.began, renewed.text, tuple(changes)), records


def begun_anew(owner: str) -> Record:
    """The record of another trail: all who follow one then read everything."""
    one = new_version(owner)
    return replace(one, id=_began(one.owner))


def _began(of: str) -> str:
    """The id of the record that names a trail."""
    return f"{of}:began"


def changed_since(
    store: RecordStore, block: str, owner: str, ids: Collection[str]
) -> dict[str, Record | None] | None:
    """What there is now of an owner's records by these ids; None where one cannot be read, which
    whoever reads all of them leaves out."""
    try:
        found = {one: store.record(block, one) for one in sorted(ids)}
    except Damaged:
        return None
    return {
        one: record if record is not None and record.owner == owner else None
        for one, record in found.items()
    }


class Following(Generic[T]):
    """What the records say of the owners asked for last: each is read and decoded once. Safe to
    share between threads.

    Args:
        decode: What a record says.
    """

    def __init__(self, decode: Callable[[Record], T]) -> None:
        self._decode = decode
        self._kept: Remembering[_Seen[T]] = Remembering(lambda one: len(one.said))

    def read(self, store: RecordStore, block: str, owner: str) -> list[T]:
        """What an owner's records say, oldest first. What did not change is the same object."""
        trail = trail_of(store, block, owner)  # before what it is of: that may be newer
        if trail is None:
            self._kept.drop(owner)
            return [self._decode(record) for record in store.records(block, owner)]
        seen = self._kept.last(owner)
        if seen is None or seen.key != trail.key:
            seen = self._followed(store, block, owner, trail, seen) or _Seen(
                trail.key, {one.id: self._entry(one) for one in store.records(block, owner)}
            )
            self._kept.keep(owner, "", seen)
        return [said for _, said in seen.said.values()]

    def _followed(
        self, store: RecordStore, block: str, owner: str, trail: Trail, seen: _Seen[T] | None
    ) -> _Seen[T] | None:
        ids = None if seen is None else trail.since(seen.key)
        changed = None if ids is None else changed_since(store, block, owner, ids)
        if seen is None or changed is None:
            return None
        said = {name: one for name, one in seen.said.items() if name not in changed}
        said |= {name: self._entry(one) for name, one in changed.items() if one is not None}
        return _Seen(trail.key, dict(sorted(said.items(), key=lambda one: (one[1][0], one[0]))))

    def _entry(self, record: Record) -> tuple[datetime, T]:
        return record.created_at, self._decode(record)


@dataclass(frozen=True, slots=True)
class _Seen(Generic[T]):
    """What an owner's records said at one version: by id, when and what, oldest first."""

    key: Key
    said: Mapping[str, tuple[datetime, T]]
