"""The setting `retention`: removes the oldest messages of a log, once nothing reads them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from agent_memory.core.records import DeadLetter, Head
from agent_memory.engine.paging import entries_of

if TYPE_CHECKING:
    from agent_memory.engine.assembly import Components


def safe_to_expire(head: Head, blocks: Collection[str], dead: Iterable[DeadLetter]) -> int:
    """Return the last seq up to which nothing reads a session's log any more.

    The log is read by the window, by a summary that a model must redo, by dead letters, and by each
    block from its cursor on, even if the block is not configured now. The entry at a cursor stays,
    because its running total is needed to count the tokens after it. The newest entry stays,
    because stores read the end of the log from this entry.
    """
    summary = head.summary
    readers = [head.start, head.end - 1]
    readers += [seq - 1 for seq in head.pinned]
    readers += [summary.redo_after] if summary and summary.redo_after is not None else []
    readers += [head.cursors.get(name, 0) - 1 for name in {*blocks, *head.cursors}]
    readers += [letter.first - 1 for letter in dead]
    return max(head.expired, min(readers))


class Retention:
    def __init__(self, parts: Components) -> None:
        self._parts, self._store, self._blocks = parts, parts.store, parts.absorber.blocks
        self._retention = parts.config.retention

    @property
    def seconds(self) -> float | None:
        """The minimum age of removed messages. None if the retention is not a time."""
        return self._retention.total_seconds() if isinstance(self._retention, timedelta) else None

    @property
    def job(self) -> str | None:
        """The name of this job for `Housekeeping`. None if logs are kept forever."""
        return None if self._retention == "forever" else f"_retention {self._retention}"

    def shorten(self, head: Head) -> Head:
        """Remove the messages that the retention does not keep. Return the new head."""
        upto = self._upto(head)
        if isinstance(self._retention, timedelta):
            upto = self._old(head, upto, datetime.now(UTC) - self._retention)
        if upto <= head.expired:
            return head
        moved = self._store.move(replace(head, expired=upto))
        if moved is None:  # another writer was faster: the next call removes them
            return head
        self._parts.windows.moved(head, moved)
        self._parts.sent.expire(head.session_id, upto)
        return moved

    def removes(self, head: Head) -> bool:
        """Return whether there are messages to remove, now or when they are old enough."""
        return self._upto(head) > head.expired

    def wait(self, head: Head) -> float | None:
        """Return the seconds until messages must be removed. None if none will be removed."""
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
        letters = self._parts.dead_letters
        dead = [each for name in self._blocks for each in letters.dead(name, head.session_id)]
        return safe_to_expire(head, self._blocks, dead)

    def _old(self, head: Head, upto: int, before: datetime) -> int:
        """Return the last seq, at most `upto`, of the entries that are old enough."""
        old = head.expired
        for entry in entries_of(self._store, head):
            if entry.seq > upto or entry.created_at >= before:
                break
            old = entry.seq
        return old
