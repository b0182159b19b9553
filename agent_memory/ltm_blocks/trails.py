"""A version of an owner's records that tells what changed lately, so that others read only that."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from uuid import uuid4

from agent_memory.core.records import Record
from agent_memory.ltm_blocks.versions import new_version, version_owner
from agent_memory.stores.base import RecordStore

_MOST_TOLD = 100  # ids: each is read by itself, and all are written with every change
_LAST = datetime(9000, 1, 1, tzinfo=UTC)  # releases before take the oldest record for the version

Key = tuple[str, str]
"""One version: what began the trail, and the last change."""


@dataclass(frozen=True, slots=True)
class Trail:
    """What is told of an owner's records.

    Who erases records knows nothing of the trail, and may do so between a writer's look at it and
    his change, which then would hide the erasure. So the trail has a beginning in a record of its
    own, which goes with any erasure, and which only who finds none writes.

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
    changes = [] if trail is None else [*trail.changes, (trail.last, tuple(changed))]
    while sum(len(ids) for _, ids in changes) > _MOST_TOLD:
        del changes[0]
    told = {"changes": [[before, list(ids)] for before, ids in changes]}
    records = [replace(renewed, metadata=told)]
    began = trail.began if trail else ""
    if not began:
        began, name = uuid4().hex, _began(renewed.owner)
        records.append(replace(renewed, id=name, text=began, created_at=_LAST))
    return Trail(began, renewed.text, tuple(changes)), records


def _began(of: str) -> str:
    """The id of the record that names a trail."""
    return f"{of}:began"
