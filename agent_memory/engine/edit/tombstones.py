"""What is to stay forgotten, when the messages that said it are gone too."""

from __future__ import annotations

from dataclasses import replace

from agent_memory.core.records import Head, Lease, Scope
from agent_memory.ltm_blocks.tombstones import FORGOTTEN
from agent_memory.stores.base import RecordStore


class Tombstones:
    """Drops the notes of what `forget` was asked for, which blocks heed when they absorb.

    Args:
        store: Where they are kept.
    """

    def __init__(self, store: RecordStore) -> None:
        self._store = store

    def user(self, user_id: str) -> None:
        """A user is deleted."""
        self._store.delete_records(FORGOTTEN, owner=Scope(user_id).owner)

    def after(self, head: Head, end: int, lease: Lease | None = None) -> None:
        """A session is cut off after a seq: what is said there next is another message."""
        owner = Scope(head.user_id, head.session_id).owner
        cut = [
            replace(note, last=end)
            for note in self._store.records(FORGOTTEN, owner)
            if note.session_id == head.session_id and note.first <= end < note.last
        ]
        self._store.put_records(FORGOTTEN, cut, lease=lease)
        self._store.delete_records(FORGOTTEN, session_id=head.session_id, after=end, lease=lease)
