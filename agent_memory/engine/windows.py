"""The cache of windows. A window is the part of a session's log that contexts show.

After an append by another process, only the new entries are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from agent_memory.core.cache import Cache
from agent_memory.core.records import Draft, Entry, Head
from agent_memory.engine.paging import picked_of, read_of
from agent_memory.stores.base import SessionStore
from agent_memory.stores.kernel.log import decrypted, entries_after, entry_for_caller

_MOST = 20_000
"""Maximum number of cached entries. Each 1,000 tokens of an entry count as one more entry."""
_TOKENS_EACH = 1_000


class _CachedWindow(NamedTuple):
    head: Head
    entries: list[Entry]
    weight: int

    def serves(self, head: Head) -> bool:
        """Return whether the window of a head begins with these entries.

        A change of the window or the log, other than an append, changes the head's version. A new
        session has another creation time. A restored snapshot may have the same version and
        creation time, but its running total differs.
        """
        if self.head.version != head.version or self.head.created_at != head.created_at:
            return False
        beyond = self.entries[-1].seq - head.end if self.entries else -1
        if not 0 <= beyond < len(self.entries):
            return beyond < 0
        last = self.entries[-1 - beyond]
        return last.seq == head.end and last.total == head.total


class Windows:
    def __init__(self, store: SessionStore) -> None:
        self._store = store
        self._cached: Cache[str, _CachedWindow] = Cache(_MOST, lambda window: window.weight, 1)

    def of(self, head: Head) -> list[Entry]:
        """Return the entries of a session's window: pinned entries, then entries after its start.

        The list may also have entries that were appended after the head was read. Callers share
        the entries, and must not change their messages.
        """
        window = self._cached.get(head.session_id)
        if window is None or not window.serves(head):
            window = self._read(head)
        entries = window.entries.copy()  # other threads may append meanwhile
        end = max(window.head.end, entries[-1].seq if entries else 0)
        if end < head.end:
            newer = decrypted(read_of(self._store, head, after=end))
            # the running total must continue: see `_CachedWindow.serves`
            follows = not entries or not newer or newer[0].before == entries[-1].total
            window = self._put(head, [*entries, *newer]) if follows else self._read(head)
            entries = window.entries.copy()
        return entries

    def _read(self, head: Head) -> _CachedWindow:
        pinned = picked_of(self._store, head, head.pinned) if head.pinned else []
        read = read_of(self._store, head, after=head.start)
        return self._put(head, decrypted([*pinned, *read]))

    def appended(self, head: Head, drafts: Sequence[Draft]) -> None:
        """Add appended messages to the cached window of their session, if there is one."""
        if head.session_id not in self._cached:
            return
        begin = head.end - len(drafts)
        with self._cached.lock:
            window = self._cached.get(head.session_id)
            if window is None or not window.serves(head) or window.head.end != begin:
                return
            total = head.total - sum([d.tokens for d in drafts if not d.message.is_system])
            for entry in entries_after(head.session_id, begin, total, drafts):
                window.entries.append(entry_for_caller(entry))  # the caller may change its draft
            weight = window.weight + _weight(drafts)
            self._cached.put(head.session_id, _CachedWindow(head, window.entries, weight))

    def moved(self, before: Head, after: Head) -> None:
        """Update the cached window after this process changed a head without changing the log."""
        window = self._cached.get(before.session_id)
        if window is not None and window.serves(before) and after.version == before.version + 1:
            pinned = set(after.pinned)
            left = [e for e in window.entries if e.seq > after.start or e.seq in pinned]
            self._put(replace(after, end=window.head.end), left)

    def forget(self, session_id: str) -> None:
        self._cached.drop(session_id)

    def _put(self, head: Head, entries: list[Entry]) -> _CachedWindow:
        if entries and entries[-1].seq > head.end:  # entries were appended since the head was read
            head = replace(head, end=entries[-1].seq)
        window = _CachedWindow(head, entries, _weight(entries))
        return self._cached.put(head.session_id, window)


def _weight(entries: Sequence[Entry | Draft]) -> int:
    """Return the number of entries, plus one for each 1,000 tokens of an entry."""
    return sum([1 + entry.tokens // _TOKENS_EACH for entry in entries])
