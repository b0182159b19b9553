"""What blocks have not absorbed yet, read from the log and kept: entries never change."""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from agent_memory.core.processes import fork_safe_lock
from agent_memory.core.records import Entry, Lag, Scope

if TYPE_CHECKING:
    from agent_memory.stores.base import SessionStore

MOST = 20_000
"""So many of the newest entries that wait are read, and kept of all that were read."""

MANY = 500
"""More than these are better absorbed than read again and again."""

_BEFORE = 16  # entries that may belong to the surroundings of the first
_Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of a session's log, from a block's cursor on. Not to be changed: it is shared.

    Attributes:
        lag: Which session, and since where.
        entries: Its entries in their order, with some from before the cursor.
    """

    lag: Lag
    entries: Sequence[Entry]

    @property
    def since(self) -> int:
        """The place of the first entry that waits."""
        return bisect_right(self.entries, self.lag.after, key=lambda entry: entry.seq)

    @property
    def count(self) -> int:
        """How many of its entries wait."""
        return len(self.entries) - self.since

    @property
    def tokens(self) -> int:
        """How long they are together."""
        waits = self.entries[self.since :]
        return waits[-1].total - waits[0].before if waits else 0


@dataclass(frozen=True, slots=True)
class Tails:
    """What waits for a block, of one owner.

    Attributes:
        lags: All sessions of which something does.
        read: The tails of those that are looked at, the newest session first.
    """

    lags: Sequence[Lag]
    read: Sequence[Tail]


class Pending:
    """Reads what a block has still to absorb.

    Args:
        store: The log.

    Attributes:
        on_many: Told a block and its lags where so much waits that it had better be absorbed.
    """

    def __init__(self, store: SessionStore) -> None:
        self._store = store
        self._lock = fork_safe_lock()
        self._kept: OrderedDict[_Key, Tail] = OrderedDict()
        self._count = 0
        self.on_many: Callable[[str, Sequence[Lag]], None] = lambda block, lags: None

    def of(self, block: str, scope: Scope, most: int = MOST) -> Tails:
        """What a block has not absorbed yet, without the newest messages that a window shows.

        To be called before what the block has absorbed is searched: what it absorbs meanwhile is
        then found in both, not in neither.

        Args:
            block: Its name; of a name that no block has all of the log waits.
            scope: Whose; see `Scope.only_session` and `Scope.shown`.
            most: So many entries at most, the newest.
        """
        lags = self.lags(block, scope)
        if sum(lag.end - lag.after for lag in lags) > MANY:
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
        tails = self._tails(block, wanted)
        if any(tail is not self._kept.get((block, tail.lag.session_id)) for tail in tails):
            # the log is read by ids, and an id may be another user's session by now
            there = {(lag.session_id, lag.created_at) for lag in self.lags(block, scope)}
            tails = [tail for tail in tails if (tail.lag.session_id, tail.lag.created_at) in there]
        for tail in tails:
            self._keep(block, tail)
        return Tails(lags, tails)

    def lags(self, block: str, scope: Scope) -> list[Lag]:
        """The sessions of which a block has something to absorb, the newest first."""
        if scope.user_id is not None:
            return self._store.lagging(block, user_id=scope.user_id)
        if scope.session_id is None:
            return []
        return self._store.lagging(block, session_id=scope.session_id)

    def _tails(self, block: str, wanted: Sequence[tuple[Lag, int]]) -> list[Tail]:
        found: dict[str, Tail] = {}
        for lag, end in wanted:
            kept = self._kept.get((block, lag.session_id))
            tail = None if kept is None else self._continued(kept, lag, end)
            if tail is not None:
                found[lag.session_id] = tail
        missing = {lag.session_id: lag for lag, _ in wanted if lag.session_id not in found}
        if missing:
            most = max(lag.end - lag.after for lag in missing.values())
            read = self._store.tails(block, list(missing), before=_BEFORE, limit=most + _BEFORE)
            entries: dict[str, list[Entry]] = {name: [] for name in missing}
            for entry in read:
                entries[entry.session_id].append(entry)
            found |= {name: Tail(missing[name], some) for name, some in entries.items()}
        return [found[lag.session_id] for lag, _ in wanted]

    def _continued(self, kept: Tail, lag: Lag, end: int) -> Tail | None:
        """What was read before, with what was appended since; None where it is to be read anew.

        Any other change gives the head another version. What was brought back from a snapshot may
        have that again: its totals tell.
        """
        was, entries = kept.lag, kept.entries
        same = (was.version, was.created_at) == (lag.version, lag.created_at)
        if not same or not entries or was.after > lag.after:
            return None
        last = entries[-1]
        if last.seq == lag.end and last.total != lag.total:
            return None
        if last.seq >= end:
            return kept
        newer = self._store.read(lag.session_id, after=last.seq, limit=end - last.seq)
        if not newer or newer[0].before != last.total:
            return None
        return Tail(lag, [*entries, *newer])

    def _keep(self, block: str, tail: Tail) -> None:
        with self._lock:
            key = (block, tail.lag.session_id)
            gone = self._kept.pop(key, None)
            self._count += len(tail.entries) - (len(gone.entries) if gone else 0)
            self._kept[key] = tail
            while self._count > MOST and len(self._kept) > 1:
                _, gone = self._kept.popitem(last=False)
                self._count -= len(gone.entries)


def _unshown(lag: Lag, scope: Scope) -> int:
    """Up to which seq a session has what its window does not show."""
    end = lag.end
    while end > lag.after and (lag.session_id, end) in scope.shown:
        end -= 1
    return end
