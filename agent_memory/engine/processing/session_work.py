"""The one way in which a session is worked on: by updates, background threads, workers, flush."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import UTC, datetime

from agent_memory.core.records import Absorbed, DeadLetter, Head
from agent_memory.engine.edit.deletion import Deletion
from agent_memory.engine.leases import Leases
from agent_memory.engine.processing.absorb import Absorber
from agent_memory.engine.processing.compaction import Overflow
from agent_memory.engine.processing.dueness import due_upto, idle_wait
from agent_memory.engine.processing.retention import Retaining
from agent_memory.stores.base import SessionStore
from agent_memory.strategies.base import Absorb

logger = logging.getLogger(__name__)

_HELD = "another worker holds the session"
_HELD_SECONDS = 1.0
"""When to look again at a session that another worker holds."""


@dataclass(frozen=True, slots=True)
class Tended:
    """What was done for a session.

    Attributes:
        absorbed: What each block absorbed, or why it could not.
        again: Seconds until somebody should look at it again; 0 for at once, None where nothing is
            left to do until it changes.
    """

    absorbed: list[Absorbed]
    again: float | None


class Tender:
    """Finishes a session's deletion, cuts its window, redoes its summary, feeds its blocks, and
    shortens its log.

    Args:
        store: The log.
        leases: One worker a session.
        overflow: Cuts windows.
        absorber: Feeds blocks.
        deletion: Finishes deletions.
        retaining: Shortens logs.
        absorb: When blocks absorb, by the strategy's word.
        idle_minutes: Silence after which a session is absorbed wholly; None for never.
    """

    def __init__(
        self,
        store: SessionStore,
        leases: Leases,
        overflow: Overflow,
        absorber: Absorber,
        deletion: Deletion,
        retaining: Retaining,
        absorb: Absorb,
        idle_minutes: float | None,
    ) -> None:
        self._store = store
        self._leases = leases
        self._overflow = overflow
        self._absorber = absorber
        self._deletion = deletion
        self._retaining = retaining
        self._absorb: Absorb = absorb
        self._idle_minutes = idle_minutes

    def needed(self, head: Head) -> bool:
        """Whether an update leaves something to do now."""
        return self._overflow.passed(head) or self._feedable(head)

    def attend(self, head: Head) -> Head:
        """Do what an update leaves to do, now; the head afterwards."""
        if self._overflow.only_cuts:
            head = self._settle(head)
            if not self._feedable(head):
                return self._retaining.shorten(head)
        self.tend(head.session_id)
        return self._store.head(head.session_id) or head

    def tend(self, session_id: str, *, turn: bool = False) -> Tended:
        """Do what is due, now; what fails rests and is tried again later.

        Args:
            session_id: The session; nothing is done while another worker holds it.
            turn: One turn of many: each block absorbs one batch at most, so that other sessions
                get theirs, and a session that fell silent is absorbed wholly.
        """
        head = self._store.head(session_id)
        if head is None:
            return Tended([], None)
        if head.deleting:
            self._deletion.finish(session_id)
            return Tended([], None)
        with self._leases.hold(session_id) as lease:
            if lease is None:
                return Tended([], _HELD_SECONDS)
            head = self._settle(head)
            idle = self._idle_wait(head) if turn else None
            reach = {
                name: upto
                for name, upto in self._waiting(head, idle).items()
                if not self._absorber.rest(session_id, name)
            }
            done = self._absorber.absorb(reach, lease, most_batches=1 if turn else 0)
            now = self._retaining.shorten(self._store.head(session_id) or head)
            if now.end > head.end:  # messages came: it is due
                return Tended(done, None)
            again = self._again(now, idle)
            if turn and again != 0:
                self._store.put_off(now, again)
            return Tended(done, again)

    def finish(self, session_id: str, wait: float) -> list[Absorbed]:
        """Absorb all that is pending, resting blocks included, and redo a waiting summary.

        A session whose deletion has begun is erased.

        Args:
            session_id: The session.
            wait: Seconds to wait for another worker to let go of it.
        """
        head = self._store.head(session_id)
        if head is not None and head.deleting:
            self._erase(session_id)
            return []
        with self._leases.hold(session_id, wait) as lease:
            head = self._store.head(session_id)
            if head is None or head.deleting:
                return []
            behind = [name for name in self._absorber.blocks if head.lag(name)]
            if lease is None:
                cursors = [(name, head.cursors.get(name, 0)) for name in behind]
                return [Absorbed(session_id, *at, at[1], _HELD) for at in cursors]
            head = self._settle(head)
            done = self._absorber.absorb(dict.fromkeys(behind, head.end), lease)
            now = self._store.head(session_id) or head
            now = self._retaining.shorten(self._overflow.redo_summary(now, insist=True))
            if now.end == head.end:  # else it is due: messages came
                self._store.put_off(now, self._again(now, self._idle_wait(now)))
            return done

    def retry(self, letter: DeadLetter, wait: float) -> Absorbed:
        """Have a block absorb a dead letter after all; see `finish` for `wait`."""
        with self._leases.hold(letter.session_id, wait) as lease:
            if lease is not None:
                return self._absorber.redeliver(letter, lease)
        return Absorbed(letter.session_id, letter.block, letter.first, letter.first - 1, _HELD)

    def _erase(self, session_id: str) -> None:
        try:
            self._deletion.finish(session_id)
        except Exception:  # what can't be erased now must not keep other sessions waiting
            logger.exception("session %r not erased; it will be tried again", session_id)

    def _settle(self, head: Head) -> Head:
        try:
            settled = self._overflow.settle(head)
            # a stand-in that was just made is not redone in the same breath
            return settled if settled is not head else self._overflow.redo_summary(head)
        except Exception:  # a strategy's bug must not keep the blocks from absorbing
            logger.exception("session %r not settled; it will be tried again", head.session_id)
            return head

    def _feedable(self, head: Head) -> bool:
        """Whether a block is due to absorb the session and does not rest."""
        waiting = self._waiting(head, None) if self._absorber.blocks else ()
        return any(not self._absorber.rest(head.session_id, name) for name in waiting)

    def _waiting(self, head: Head, idle: float | None) -> dict[str, int]:
        """The blocks that are due to absorb the session, in order, each with the seq to reach."""
        reach = {name: self._upto(head, name, idle) for name in self._absorber.blocks}
        return {name: upto for name, upto in reach.items() if upto > head.cursors.get(name, 0)}

    def _upto(self, head: Head, block: str, idle: float | None) -> int:
        def total_at(seq: int) -> int:
            found = self._store.pick(head.session_id, [seq]) if seq else []
            return found[0].total if found else 0

        if idle == 0:
            return head.end
        return due_upto(head, head.cursors.get(block, 0), self._absorb, total_at)

    def _idle_wait(self, head: Head) -> float | None:
        """Seconds until the session counts as idle; None where that makes no difference."""
        if self._idle_minutes is None or not any(head.lag(name) for name in self._absorber.blocks):
            return None
        newest = self._store.pick(head.session_id, [head.end])
        if not newest:
            return None
        return idle_wait(newest[0].created_at, datetime.now(UTC), self._idle_minutes)

    def _again(self, head: Head, idle: float | None) -> float | None:
        waiting = self._waiting(head, idle)
        times = [self._absorber.rest(head.session_id, name) for name in waiting]
        redo = self._overflow.redo_wait(head)
        times += [redo] if redo is not None else []
        expiry = self._retaining.wait(head)
        times += [expiry] if expiry is not None else []
        times += [idle] if idle and any(map(head.lag, self._absorber.blocks)) else []
        return min(times, default=None)
