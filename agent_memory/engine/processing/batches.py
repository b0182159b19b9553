"""Cutting a session's log into batches for blocks, read once for all that take them."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from agent_memory.core.records import Entry
from agent_memory.stores.base import SessionStore
from agent_memory.stores.log import lent_entry

BATCH_ENTRIES = 100
BATCH_TOKENS = 6_000

_KEPT = 4  # of blocks that take the same batches one may be a little ahead


class Batches:
    """The batches of one session.

    Args:
        store: The log.
        session_id: The session.
    """

    def __init__(self, store: SessionStore, session_id: str) -> None:
        self._store = store
        self._session_id = session_id
        self._lock = threading.Lock()
        self._read: dict[tuple[int, int], tuple[list[Entry], int]] = {}

    def after(self, cursor: int, target: int) -> tuple[list[Entry], int]:
        """The next entries to absorb (system messages never are), and the seq they reach to."""
        with self._lock:
            found = self._read.get((cursor, target)) or self._next(cursor, target)
            self._read[cursor, target] = found
            if len(self._read) > _KEPT:
                del self._read[next(iter(self._read))]
        entries, last = found
        return [lent_entry(entry) for entry in entries], last

    def _next(self, cursor: int, target: int) -> tuple[list[Entry], int]:
        limit = min(BATCH_ENTRIES, target - cursor)
        read = self._store.read(self._session_id, after=cursor, limit=limit)
        read = [entry for entry in read if entry.seq <= target]
        if not read:  # the log has none of them any more
            return [], target
        tokens, last = 0, cursor
        for entry in read:
            tokens += entry.tokens
            if last > cursor and tokens > BATCH_TOKENS:
                break
            last = entry.seq
        return turns([entry for entry in read if entry.seq <= last]), last


def turns(entries: Sequence[Entry]) -> list[Entry]:
    """The entries that are not system messages, which blocks and summaries leave out."""
    return [entry for entry in entries if not entry.message.is_system]
