"""How long a log keeps what has passed everything that reads it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from agent_memory.config.settings import Retention as Setting
from agent_memory.core.records import DeadLetter, Head
from agent_memory.engine.processing.dead_letters import DeadLetters
from agent_memory.engine.windows import Windows
from agent_memory.stores.base import SessionStore

_PAGE = 100


def safe_to_expire(head: Head, blocks: Collection[str], dead: Iterable[DeadLetter]) -> int:
    """The seq up to which nothing reads a session's log any more.

    What still reads it: the window; a summary that a model is to redo; each block from its cursor
    on, also one that is not configured now, and from its dead letters on. The entry at a cursor
    stays, since its running total says how much waits after it.

    Args:
        head: The session's.
        blocks: Names of the blocks that absorb.
        dead: What blocks gave up of the session.
    """
    summary = head.summary
    readers = [head.start, head.end - 1]
    readers += [seq - 1 for seq in head.pinned]
    readers += [summary.redo_after] if summary and summary.redo_after is not None else []
    readers += [head.cursors.get(name, 0) - 1 for name in {*blocks, *head.cursors}]
    readers += [letter.first - 1 for letter in dead]
    return max(head.expired, min(readers))


class Retention:
    """Shortens logs from their beginning.

    Args:
        store: The log.
        windows: What was read of it.
        dead_letters: What blocks gave up.
        blocks: Names of the blocks that absorb.
        expired: Told of a session and the seq up to which its log was shortened.
        retention: "forever"; "window": no longer than something reads it; or for at least so long
            after the message's own time.
    """

    def __init__(
        self,
        store: SessionStore,
        windows: Windows,
        dead_letters: DeadLetters,
        blocks: Collection[str],
        expired: Callable[[str, int], None],
        retention: Setting,
    ) -> None:
        self._store = store
        self._windows = windows
        self._dead_letters = dead_letters
        self._blocks = blocks
        self._expired = expired
        self._retention: Setting = retention

    @property
    def seconds(self) -> float | None:
        """For how long messages are kept; None where that is not a matter of time."""
        return self._retention.total_seconds() if isinstance(self._retention, timedelta) else None

    @property
    def job(self) -> str | None:
        """What workers note that they do, beside the names of blocks; None for nothing."""
        return None if self._retention == "forever" else f"_retention {self._retention}"

    def shorten(self, head: Head) -> Head:
        """Remove what was kept for long enough; the head afterwards."""
        upto = self._upto(head)
        if upto <= head.expired:
            return head
        if isinstance(self._retention, timedelta):
            upto = self._old(head, upto, datetime.now(UTC) - self._retention)
        if upto <= head.expired:
            return head
        moved = self._store.move(replace(head, expired=upto))
        if moved is None:  # another writer came first: next time
            return head
        self._windows.moved(head, moved)
        self._expired(head.session_id, upto)
        return moved

    def removes(self, head: Head) -> bool:
        """Whether there is something to remove, now or once it is old enough."""
        return self._upto(head) > head.expired

    def wait(self, head: Head) -> float | None:
        """Seconds until more is to be removed; None where that is not a matter of time."""
        if not isinstance(self._retention, timedelta) or self._upto(head) <= head.expired:
            return None
        oldest = self._store.read(head.session_id, after=head.expired, limit=1)
        if not oldest:
            return None
        age = datetime.now(UTC) - oldest[0].created_at
        return max(0.0, (self._retention - age).total_seconds())

    def _upto(self, head: Head) -> int:
        if self._retention == "forever" or head.start <= head.expired:
            return head.expired
        dead = [
            letter
            for name in self._blocks
            for letter in self._dead_letters.dead(name, head.session_id)
        ]
        return safe_to_expire(head, self._blocks, dead)

    def _old(self, head: Head, upto: int, before: datetime) -> int:
        """The last seq, at most `upto`, before the first entry that is not so old."""
        old = head.expired
        while old < upto:
            for entry in self._store.read(head.session_id, after=old, limit=_PAGE):
                if entry.seq > upto or entry.created_at >= before:
                    return old
                old = entry.seq
        return old
