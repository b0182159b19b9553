"""What the engine itself has to remember: small durable notes, kept in the fact store."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from agent_memory.core.records import Record
from agent_memory.ltm_blocks.base import record_id
from agent_memory.stores.base import FactStore

PLACE = "_notes"
"""Where they are kept, beside blocks: no block's name begins so."""


class Notes:
    """Notes of a kind, by key.

    Args:
        store: Where they are kept.
    """

    def __init__(self, store: FactStore) -> None:
        self._store = store

    def write(self, kind: str, key: str, **values: Any) -> None:
        """Write a note, over the one with this key."""
        name, now = record_id(kind, key), datetime.now(UTC)
        note = Record(name, kind, "", 0, 0, key, (), now, values)
        self._store.put_facts(PLACE, [note])

    def read(self, kind: str) -> dict[str, dict[str, Any]]:
        """All notes of a kind, oldest first."""
        return {note.text: note.metadata for note in self._store.facts(PLACE, kind)}

    def drop(self, kind: str, key: str) -> None:
        """Take a note away. Idempotent."""
        self._store.delete_facts(PLACE, record_id=record_id(kind, key))
