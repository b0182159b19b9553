"""The engine's own durable state: small records in the store, called notes here."""

from __future__ import annotations

from enum import Enum
from typing import Any

from agent_memory.core.records import Lease, Record, Scope
from agent_memory.core.system_collections import NOTES, PROMPT_TEXTS, SYSTEM_COLLECTIONS
from agent_memory.ltm_blocks.base import record_id
from agent_memory.stores.base import RecordStore


class Kind(Enum):
    JOBS = "configured jobs"
    """The configured blocks and settings that cause work. A new job makes all sessions due."""
    REPLAYS = "replays"
    """The progress of a block's replay."""
    USER_DELETIONS = "user deletions"
    """Unfinished deletions of users."""
    SCRUBS = "scrubs"
    """Pending erasures of deleted data that remains in this store's files."""
    MIGRATION = "migration"
    """The unfinished migration into this store."""
    HEARTBEATS = "signs of life"
    """The times at which a worker last looked for work, and blocks last absorbed."""


_PER_STORE = frozenset({Kind.SCRUBS.value, Kind.MIGRATION.value, Kind.HEARTBEATS.value})


class SystemRecords:
    def __init__(self, store: RecordStore) -> None:
        self._store = store

    def write(self, kind: Kind, key: str, **values: Any) -> None:
        self._store.put_records(NOTES.name, [self.note(kind, key, **values)])

    def note(self, kind: Kind, key: str, **values: Any) -> Record:
        return Record(record_id(kind.value, key), kind.value, text=key, metadata=values)

    def read(self, kind: Kind) -> dict[str, dict[str, Any]]:
        """Return the values of all notes of a kind, by key, oldest first."""
        return {note.text: note.metadata for note in self._store.records(NOTES.name, kind.value)}

    def drop(self, kind: Kind, key: str) -> None:
        self._store.delete_records(NOTES.name, record_id=record_id(kind.value, key))

    def erase_session(self, session_id: str, lease: Lease | None = None) -> None:
        """Delete a session's records from the library's own collections."""
        for collection in SYSTEM_COLLECTIONS:
            if collection.goes_with_session and collection.is_facts:
                self._store.delete_records(collection.name, session_id=session_id, lease=lease)
        owner = Scope(None, session_id).owner  # its contexts have texts of other sessions
        self._store.delete_records(PROMPT_TEXTS.name, owner=owner, lease=lease)


def stays_behind(collection: str, owner: str) -> bool:
    """Return whether a migration must not copy a record, because it concerns one store only."""
    return collection == NOTES.name and owner in _PER_STORE
