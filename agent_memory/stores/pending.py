"""Reads and caches pending entries, which a block has not absorbed yet."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from agent_memory.core.cache import Cache
from agent_memory.core.records import Entry, Lag, Scope
from agent_memory.stores.kernel.log import decrypted

if TYPE_CHECKING:
    from agent_memory.stores.base import SessionStore

MOST = 200_000
"""The maximum number of entries that one call reads."""

_MOST_CACHED = 50_000  # maximum number of cached entries; one owner may have more

MANY = 64
"""With more pending entries than this, `Pending.on_many` is called, so that they are absorbed."""

_BEFORE = 16  # number of entries to read before the first pending entry, as its context
_PAGE = 5_000  # maximum number of entries in a page of several sessions
_Key = tuple[str, str]  # block and owner


@dataclass(frozen=True, slots=True)
class Tail:
    """A session's pending entries. Callers share the object and must not change it."""

    lag: Lag  # the session, and the cursor after which entries are pending
    entries: Sequence[Entry]  # the entries in order, including some before the cursor

    @property
    def since(self) -> int:
        return bisect_right(self.entries, self.lag.after, key=lambda entry: entry.seq)

    @property
    def count(self) -> int:
        return len(self.entries) - self.since

    @property
    def tokens(self) -> int:
        pending = self.entries[self.since :]
        return pending[-1].total - pending[0].before if pending else 0

    def stands(self, lag: Lag) -> bool:
        """Return whether nothing but appends has changed the session.

        Other changes increment the head's version. A session that was restored from a snapshot may
        have the same version, but has other totals.
        """
        last = self.entries[-1]
        if (self.lag.version, self.lag.created_at) != (lag.version, lag.created_at):
            return False
        return last.seq < lag.end or (last.seq == lag.end and last.total == lag.total)


@dataclass(frozen=True, slots=True)
class Tails:
    """The pending entries of a block, for one owner."""

    lags: Sequence[Lag]  # all sessions with pending entries
    read: Sequence[Tail]  # the pending entries that were read, the newest session first

    @property
    def count(self) -> int:
        """Return the number of pending entries in all sessions."""
        return sum(lag.end - lag.after for lag in self.lags)


class Pending:
    """Reads the pending entries of blocks.

    Attributes:
        on_many: Called with a block and its lags if more than `MANY` entries are pending.
    """

    def __init__(self, store: SessionStore) -> None:
        self._store = store
        self._cache: Cache[_Key, dict[str, Tail]] = Cache(_MOST_CACHED, _size, 1)
        self.on_many: Callable[[str, Sequence[Lag]], None] = lambda block, lags: None

    def of(self, block: str, scope: Scope, most: int = MOST) -> Tails:
        """Return a block's pending entries, without the newest entries, which the window shows.

        Call this method before you search the block's records. If the block absorbs an entry
        between the two calls, both results then contain the entry. In the other order, the entry
        could be missing from both.

        Args:
            block: The name of the block. For an unknown name, the whole log is pending.
            scope: The owner; see `Scope.only_session` and `Scope.shown`.
            most: The maximum number of entries to read. If there are more, the newest are read.
        """
        lags = self.lags(block, scope)
        if Tails(lags, ()).count > MANY:
            self.on_many(block, lags)
        wanted: list[tuple[Lag, int]] = []
        for lag in lags:
            if most <= 0:
                break
            own = lag.session_id == scope.session_id
            if scope.only_session and not own:
                continue
            end = _unshown(lag, scope) if own else lag.end
            if end > lag.after:
                wanted.append((replace(lag, after=max(lag.after, end - most)), end))
                most -= end - lag.after
        cached = self._cache.get((block, scope.owner), {})
        tails = self._tails(block, wanted, cached)
        if any(tail is not cached.get(tail.lag.session_id) for tail in tails):
            # The log was read by session id. Another user's session may have this id by now.
            valid = {(lag.session_id, lag.created_at) for lag in self.lags(block, scope)}
            tails = [tail for tail in tails if (tail.lag.session_id, tail.lag.created_at) in valid]
        self._store_tails((block, scope.owner), lags, tails)
        return Tails(lags, tails)

    def lags(self, block: str, scope: Scope) -> list[Lag]:
        """Return the sessions that a block has not fully absorbed, the newest first."""
        if scope.user_id is not None:
            return self._store.lagging(block, user_id=scope.user_id)
        if scope.session_id is None:
            return []
        return self._store.lagging(block, session_id=scope.session_id)

    def _tails(
        self, block: str, wanted: Sequence[tuple[Lag, int]], cached: Mapping[str, Tail]
    ) -> list[Tail]:
        tails: dict[str, Tail] = {}
        for lag, end in wanted:
            was = cached.get(lag.session_id)
            tail = None if was is None else self._continued(was, lag, end)
            if tail is not None:
                tails[lag.session_id] = tail
        missing = [lag for lag, _ in wanted if lag.session_id not in tails]
        for page in _pages(missing):
            most = max(lag.end - lag.after for lag in page)
            names = [lag.session_id for lag in page]
            entries: dict[str, list[Entry]] = {name: [] for name in names}
            read = self._store.tails(block, names, before=_BEFORE, limit=most + _BEFORE)
            for entry in decrypted(read):
                entries[entry.session_id].append(entry)
            tails |= {lag.session_id: Tail(lag, entries[lag.session_id]) for lag in page}
        return [tails[lag.session_id] for lag, _ in wanted]

    def _continued(self, cached: Tail, lag: Lag, end: int) -> Tail | None:
        """Return the cached tail with newer entries; None if it must be read again."""
        entries = cached.entries
        if not entries or cached.lag.after > lag.after or not cached.stands(lag):
            return None
        last = entries[-1]
        if last.seq >= end:
            return cached
        newer = decrypted(self._store.read(lag.session_id, after=last.seq, limit=end - last.seq))
        if not newer or newer[0].before != last.total:
            return None
        return Tail(lag, [*entries, *newer])

    def _store_tails(self, key: _Key, lags: Sequence[Lag], tails: Sequence[Tail]) -> None:
        """Cache tails, and drop the cached tails of sessions without pending entries."""
        with self._cache.lock:
            cached = self._cache.get(key, {})
            lagging = {lag.session_id for lag in lags}
            now = {name: tail for name, tail in cached.items() if name in lagging}
            now |= {tail.lag.session_id: tail for tail in tails}
            if now:
                self._cache.put(key, now)
            else:
                self._cache.drop(key)


def _pages(lags: Sequence[Lag]) -> Iterator[list[Lag]]:
    """Yield pages of sessions, each small enough to be read by one call."""
    page: list[Lag] = []
    count = 0
    for lag in lags:
        if page and count + lag.end - lag.after > _PAGE:
            yield page
            page, count = [], 0
        page.append(lag)
        count += lag.end - lag.after
    if page:
        yield page


def _size(tails: Mapping[str, Tail]) -> int:
    return sum(len(tail.entries) for tail in tails.values())


def _unshown(lag: Lag, scope: Scope) -> int:
    """Return the newest pending seq that the window does not show; the cursor if there is none."""
    end = lag.end
    while end > lag.after and (lag.session_id, end) in scope.shown:
        end -= 1
    return end
