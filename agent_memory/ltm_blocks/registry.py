"""Registry of the blocks with data in a store, and tombstones of forgotten facts and messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import groupby
from typing import Literal

from pydantic import TypeAdapter

from agent_memory.core.records import Head, Record, Scope
from agent_memory.core.system_collections import FORGOTTEN as _COLLECTION
from agent_memory.core.system_collections import REGISTRY
from agent_memory.ltm_blocks.base import record_id
from agent_memory.ltm_blocks.versions import erase
from agent_memory.stores.base import RecordStore, Store

Registered = Literal["blocks", "indexes", "elsewhere"]
"""The kind of a registered name. "blocks": a block with data in the store. "indexes": a collection
of users' vectors. "elsewhere": a block with a database of its own."""


def register(store: RecordStore, name: str, kind: Registered = "blocks") -> None:
    """Register a block, or a collection of vectors, before its first data is stored."""
    if name not in registered(store, kind):
        now = datetime.now(UTC)
        record = Record(record_id(kind, name), kind, "", 0, 0, name, (), now)
        store.put_records(REGISTRY.name, [record])


def registered(store: RecordStore, kind: Registered = "blocks") -> set[str]:
    """Return the registered names. A name stays registered after its data is deleted."""
    return {record.text for record in store.records(REGISTRY.name, kind)}


def erase_indexed(store: Store, user_id: str) -> None:
    """Erase a user's vectors in all registered collections."""
    for place in registered(store, "indexes"):
        store.delete_vectors(place, owner=Scope(user_id).owner)


def erase_derived(store: Store, block: str, scope: Scope) -> None:
    """Erase a block's records and vectors of a session; see `erase`."""
    erase(store, block, scope)
    store.delete_vectors(block, session_id=scope.session_id, after=scope.after, lease=scope.lease)


FORGOTTEN = _COLLECTION.name
"""The name of the collection of tombstones in stores."""


@dataclass(frozen=True, slots=True)
class Tombstone:
    """A mark, without any text, that a fact or a part of a session must stay forgotten."""

    fact: str | None  # id of the forgotten fact; None if everything from the messages is forgotten
    session_id: str
    first: int
    last: int
    # the part of the message that the fact quoted; None for whole messages
    span: tuple[int, int] | None
    at: datetime
    why: str
    spared: tuple[str, ...] = ()  # records that stay although their quotes overlap `span`

    def covers(self, record_id: str, session_id: str, seq: int, span: tuple[int, int]) -> bool:
        """Return whether a record must stay forgotten.

        Such a record comes from the tombstone's messages. If the tombstone has a span, the record's
        quote, at `span`, must also overlap it, and the record must not be in `spared`.

        Limitations: a model may find the same fact again in other words.
        """
        if session_id != self.session_id or not self.first <= seq <= self.last:
            return False
        if self.span is None:
            return True
        return record_id not in self.spared and overlap(self.span, span)


def overlap(first: tuple[int, int], second: tuple[int, int]) -> bool:
    return first[0] < second[1] and second[0] < first[1]


_TOMBSTONES = TypeAdapter(Tombstone)


def record_of(tombstone: Tombstone, block: str, owner: str) -> Record:
    """Return the record of a block's tombstone. Its id derives from the tombstone's content."""
    own = {"session_id", "first", "last", "at"}
    place = (tombstone.session_id, tombstone.first, tombstone.last)
    name = record_id(block, owner, *place, tombstone.span, tombstone.fact)
    metadata = {"block": block, **_TOMBSTONES.dump_python(tombstone, mode="json", exclude=own)}
    return Record(name, owner, *place, FORGOTTEN, (), tombstone.at, metadata)


def _tombstone_of(record: Record) -> Tombstone:
    own = {"first": record.first, "last": record.last, "at": record.created_at}
    fields = {**record.metadata, "session_id": record.session_id, **own}
    return _TOMBSTONES.validate_python(fields)


def tombstones(store: RecordStore, block: str, owner: str) -> list[Tombstone]:
    records = store.records(FORGOTTEN, owner)
    return [_tombstone_of(record) for record in records if record.metadata["block"] == block]


def bury(store: RecordStore, block: str, owner: str, gone: Sequence[Tombstone]) -> None:
    """Store tombstones. Call it before the data that the tombstones cover is erased."""
    store.put_records(FORGOTTEN, [record_of(tombstone, block, owner) for tombstone in gone])


def moved_tombstones(
    store: RecordStore, head: Head, end: int, seqs: Mapping[int, int]
) -> list[Record]:
    """Return a session's tombstones with their seqs after an edit.

    The log stays up to `end`. `seqs` has the new seqs of later unchanged messages, by old seq.
    """
    owner, moved = Scope(head.user_id, head.session_id).owner, list[Record]()
    for record in store.records(FORGOTTEN, owner):
        if record.session_id != head.session_id:
            continue
        later = (new for old, new in seqs.items() if record.first <= old <= record.last)
        places = sorted([*range(record.first, min(record.last, end) + 1), *later])
        for _, run in groupby(enumerate(places), lambda pair: pair[1] - pair[0]):
            part = [seq for _, seq in run]
            tombstone = replace(_tombstone_of(record), first=part[0], last=part[-1])
            moved.append(record_of(tombstone, record.metadata["block"], owner))
    return moved
