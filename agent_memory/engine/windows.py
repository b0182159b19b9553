"""What was read of windows is kept: a log's entries never change, so only newer ones are read."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from agent_memory.core.processes import fork_safe_lock
from agent_memory.core.records import Draft, Entry, Head
from agent_memory.engine.paging import picked_of, read_of
from agent_memory.stores.base import SessionStore
from agent_memory.stores.log import entries_after, entry_for_caller

_MOST = 20_000
"""Entries that are kept at most; a long one counts as several."""
_TOKENS_EACH = 1_000


class _CachedWindow(NamedTuple):
    """A window as it was read last, with the seqs of the messages that are not flat."""

    head: Head
    entries: list[Entry]
    loose: set[int]

    def serves(self, head: Head) -> bool:
        """Whether the window of this head begins with these entries.

        Cuts, pops and deletions give the head another version; what begins anew, another time. What
        was brought back from a snapshot may have both again: its total tells.
        """
        if self.head.version != head.version or self.head.created_at != head.created_at:
            return False
        beyond = self.entries[-1].seq - head.end if self.entries else -1
        if not 0 <= beyond < len(self.entries):
            return beyond < 0
        last = self.entries[-1 - beyond]
        return last.seq == head.end and last.total == head.total


class Windows:
    """The entries of windows.

    Args:
        store: The log.
    """

    def __init__(self, store: SessionStore) -> None:
        self._store = store
        self._lock = fork_safe_lock()
        self._kept: OrderedDict[str, _CachedWindow] = OrderedDict()
        self._count = 0

    def of(self, head: Head) -> list[Entry]:
        """The entries of a session's window: the pinned ones, then those after its start.

        The caller's own: he may change what their messages hold.
        """
        kept = self._kept.get(head.session_id)
        if kept is None or not kept.serves(head):
            kept = self._read(head)
        entries = kept.entries.copy()  # others may append meanwhile
        end = max(kept.head.end, entries[-1].seq if entries else 0)
        if end < head.end:
            newer = read_of(self._store, head, after=end)
            follows = _follow(entries, newer)
            kept = self._keep(head, [*entries, *newer]) if follows else self._read(head)
            entries = kept.entries.copy()
        return [entry_for_caller(entry) for entry in entries] if kept.loose else entries

    def _read(self, head: Head) -> _CachedWindow:
        pinned = picked_of(self._store, head, head.pinned) if head.pinned else []
        return self._keep(head, [*pinned, *read_of(self._store, head, after=head.start)])

    def appended(self, head: Head, drafts: Sequence[Draft]) -> None:
        """Messages were appended by this process: they need not be read.

        Args:
            head: The head after them.
            drafts: What was appended.
        """
        if head.session_id not in self._kept:  # most are written more often than read
            return
        begin = head.end - len(drafts)
        with self._lock:
            kept = self._kept.get(head.session_id)
            if kept is None or not kept.serves(head) or kept.head.end != begin:
                return
            total = head.total - sum([d.tokens for d in drafts if not d.message.is_system])
            for entry in entries_after(head.session_id, begin, total, drafts):
                own = entry_for_caller(entry)
                if own is not entry:
                    kept.loose.add(entry.seq)
                kept.entries.append(own)
            self._kept[head.session_id] = _CachedWindow(head, kept.entries, kept.loose)
            self._grew(_weight(drafts))

    def moved(self, before: Head, after: Head) -> None:
        """A head was moved, by this process, and its log stayed: what was read of it still holds.

        Args:
            before: The head that was replaced.
            after: What replaced it, as it is stored.
        """
        kept = self._kept.get(before.session_id)
        if kept is not None and kept.serves(before) and after.version == before.version + 1:
            pinned = set(after.pinned)
            left = [e for e in kept.entries if e.seq > after.start or e.seq in pinned]
            self._put(
                replace(after, end=kept.head.end),
                left,
                kept.loose and kept.loose & {e.seq for e in left},
            )

    def forget(self, session_id: str) -> None:
        """Drop what was read of a session."""
        with self._lock:
            self._drop(session_id)

    def _keep(self, head: Head, entries: list[Entry]) -> _CachedWindow:
        return self._put(head, entries, {e.seq for e in entries if not e.message.is_flat})

    def _put(self, head: Head, entries: list[Entry], loose: set[int]) -> _CachedWindow:
        if entries and entries[-1].seq > head.end:  # appended since the head was read
            head = replace(head, end=entries[-1].seq)
        kept = _CachedWindow(head, entries, loose)
        with self._lock:
            self._drop(head.session_id)
            self._kept[head.session_id] = kept
            self._grew(_weight(entries))
        return kept

    def _grew(self, by: int) -> None:
        """Make room for more entries: what was read first goes first, the newest stays."""
        self._count += by
        while self._count > _MOST and len(self._kept) > 1:
            self._drop(next(iter(self._kept)))

    def _drop(self, session_id: str) -> None:
        kept = self._kept.pop(session_id, None)
        self._count -= _weight(kept.entries) if kept else 0


def _weight(entries: Sequence[Entry | Draft]) -> int:
    """How many entries of usual length these are."""
    return sum([1 + one.tokens // _TOKENS_EACH for one in entries])


def _follow(entries: Sequence[Entry], newer: Sequence[Entry]) -> bool:
    """Whether the running totals go on from one to the other; see `_CachedWindow.serves`."""
    if not entries or not newer:
        return True
    return newer[0].before == entries[-1].total
