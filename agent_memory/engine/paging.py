"""Reads of sessions and their logs, in pages, and the cache of windows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from agent_memory.core.cache import Cache
from agent_memory.core.limits import PAST_SHARED, share_of
from agent_memory.core.records import Draft, Entry, Head
from agent_memory.stores.base import SessionStore
from agent_memory.stores.kernel.log import decrypted, entries_after, entry_for_caller

_HEADS = 500
_PAGE = 200


def all_heads(
    store: SessionStore, user_id: str | None = None, after: str | None = None
) -> Iterator[Head]:
    """Yield the heads of all sessions, or of a user's sessions, by id, beginning after `after`."""
    while page := store.sessions(user_id=user_id, limit=_HEADS, after=after):
        yield from page
        after = page[-1].session_id


def listed_heads(
    store: SessionStore, user_id: str | None, after: str | None, limit: int, *, shared: bool = False
) -> Iterator[Head]:
    """Yield heads like `all_heads`, without sessions that are being deleted.

    With `shared`, yield sessions of shared namespaces only. Without it, yield other sessions only.
    The caller takes about `limit` heads.
    """
    size = min(limit, _HEADS)
    while page := store.sessions(user_id=user_id, limit=size, after=after):
        yield from (head for head in page if is_listed(head, shared=shared))
        if len(page) < size:
            return
        after = page[-1].session_id
        if not shared and share_of(after) is not None:
            after = PAST_SHARED


def is_listed(head: Head, *, shared: bool = False) -> bool:
    return not head.deleting and (share_of(head.session_id) is not None) == shared


def read_of(
    store: SessionStore, head: Head, *, after: int = 0, limit: int | None = None
) -> list[Entry]:
    """Return the entries of a log after a seq, in order: an empty list if the session is gone.

    A deleted session's id may soon belong to another user's session. Entries are therefore returned
    only if the session of `head` still exists after the read.
    """
    entries = store.read(head.session_id, after=after, limit=limit)
    return entries if not entries or still_exists(store, head) else []


def range_of(store: SessionStore, head: Head, after: int, upto: int) -> list[Entry]:
    """Return the stored entries with a seq above `after` and up to `upto`."""
    return read_of(store, head, after=after, limit=upto - after) if upto > after else []


def entries_of(store: SessionStore, head: Head) -> Iterator[Entry]:
    """Yield the entries of a log, read in pages. Stop early if the session is gone."""
    after = head.expired
    while page := read_of(store, head, after=after, limit=_PAGE):
        yield from page
        after = page[-1].seq


def picked_of(store: SessionStore, head: Head, seqs: Sequence[int]) -> list[Entry]:
    """Return the stored entries with these seqs: an empty list if the session is gone."""
    entries = store.pick(head.session_id, seqs)
    return entries if not entries or still_exists(store, head) else []


def head_now(store: SessionStore, head: Head) -> Head | None:
    """Return a session's current head. None if the session is gone, or its id was reused."""
    now = store.head(head.session_id)
    return now if now is not None and now.created_at == head.created_at else None


def still_exists(store: SessionStore, head: Head) -> bool:
    """Return whether the session of a head still exists. A newer one with its id does not count."""
    return head_now(store, head) is not None


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
