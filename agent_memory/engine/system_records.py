"""The engine's own durable state: small records in the fact store."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import Enum
from typing import Any

from agent_memory.core.records import Lease, Record
from agent_memory.core.system_collections import NOTES, RESERVED
from agent_memory.ltm_blocks.base import record_id
from agent_memory.stores.base import RecordStore


class Kind(Enum):
    """The kinds of notes, each of one job of the engine."""

    JOBS = "configured jobs"
    """The blocks and settings that sessions are worked on for, each noted once it was seen."""
    REPLAYS = "replays"
    """How far a replay of a block has come."""
    USER_DELETIONS = "user deletions"
    """Deletions of users that have begun."""
    SCRUBS = "scrubs"
    """Traces in this store's files that are to be erased."""
    MIGRATION = "migration"
    """That this store is the target of a migration that has not come to its end."""
    HEARTBEATS = "signs of life"
    """When a worker last looked for work, and when blocks last absorbed something."""


_OF_ONE_STORE = frozenset({Kind.SCRUBS.value, Kind.MIGRATION.value, Kind.HEARTBEATS.value})


class SystemRecords:
    """The engine's notes by kind and key, and what its collections hold of a session."""

    def __init__(self, store: RecordStore) -> None:
        self._store = store

    def write(self, kind: Kind, key: str, **values: Any) -> None:
        """Write a note, over the one with this key."""
        self._store.put_records(NOTES.name, [self.note(kind, key, **values)])

    def note(self, kind: Kind, key: str, **values: Any) -> Record:
        """The record of a note."""
        name, now = record_id(kind.value, key), datetime.now(UTC)
        return Record(name, kind.value, "", 0, 0, key, (), now, values)

    def read(self, kind: Kind) -> dict[str, dict[str, Any]]:
        """All notes of a kind by key, oldest first."""
        return {note.text: note.metadata for note in self._store.records(NOTES.name, kind.value)}

    def drop(self, kind: Kind, key: str) -> None:
        """Take a note away. Idempotent."""
        self._store.delete_records(NOTES.name, record_id=record_id(kind.value, key))

    def erase_session(self, session_id: str, lease: Lease | None = None) -> None:
        """Erase all that reserved collections hold of a session.

        Raises:
            LeaseLost: The lease is not held any more.
        """
        for collection in RESERVED:
            if collection.goes_with_session and collection.is_facts:
                self._store.delete_records(collection.name, session_id=session_id, lease=lease)


def stays_behind(collection: str, record: Record) -> bool:
    """Whether a record tells of one store alone, so that no migration brings it to another."""
    return collection == NOTES.name and record.owner in _OF_ONE_STORE
