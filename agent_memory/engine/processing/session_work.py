"""A session's work: by updates, background threads, workers and flush alike."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from agent_memory.core.records import Absorbed, DeadLetter, Entry, Head, Lease
from agent_memory.core.threads import apart
from agent_memory.engine.leases import Leases, busy
from agent_memory.engine.paging import head_now
from agent_memory.engine.processing.absorb import BATCH_ENTRIES, BATCH_TOKENS, Absorber
from agent_memory.engine.processing.backlog import Backlog
from agent_memory.engine.processing.compaction import Compaction
from agent_memory.engine.processing.retention import Retention
from agent_memory.errors import AgentMemoryError, Damaged
from agent_memory.stores.base import SessionStore
from agent_memory.stores.damage import leave_out
from agent_memory.stores.log import check_owner
from agent_memory.strategies.base import Absorb

logger = logging.getLogger(__name__)

_HELD = "another worker holds the session"
_HELD_SECONDS = 1.0
"""When to look again at a session that another worker holds."""
_LONGEST_WAIT = 600.0
"""When to look at a session that changed, whatever is to be done for it: a process that was killed
may have left something."""


def target_seq(head: Head, cursor: int, absorb: Absorb, total_at: Callable[[int], int]) -> int:
    """The seq up to which a block is to absorb the session now; at or below its cursor: not yet.

    Pure.

    Args:
        head: The session's.
        cursor: The block's.
        absorb: The strategy's word: on overflow, at every update, or once so many tokens wait.
        total_at: The running token total at a seq; asked only where tokens decide.
    """
    if absorb == "every_update":
        return head.end
    if absorb != "overflow" and cursor < head.end and head.total - total_at(cursor) >= absorb:
        return head.end
    return head.start  # what left the window


def longest_wait(
    absorb: Absorb, waits: Sequence[float], idle_minutes: float | None, retention: float | None
) -> float:
    """In how many seconds to look at a session that an append left nothing to do for. Pure.

    Else each message costs a worker a look, to find that it is to wait.

    Args:
        absorb: The strategy's word: on overflow, at every update, or once so many tokens wait.
        waits: Of each block for how many seconds of silence it waits before it absorbs at every
            update. Of none nothing is known: blocks of other processes may.
        idle_minutes: Silence after which a session is absorbed wholly; None for never.
        retention: For how many seconds messages are kept; None where time does not matter.
    """
    if not waits:
        return 0.0
    times = [_LONGEST_WAIT, *(waits if absorb == "every_update" else ())]
    times += [idle_minutes * 60] if idle_minutes is not None else []
    times += [retention] if retention is not None else []
    return min(times)


def idle_wait(newest: datetime, now: datetime, minutes: float) -> float:
    """Seconds until a session counts as idle; 0 where it does. Pure.

    Args:
        newest: Time of its newest message; one that lies in the future counts as now.
        now: The time.
        minutes: How long a session must have been silent.
    """
    silent = max(0.0, (now - newest).total_seconds())
    return max(0.0, minutes * 60 - silent)


def quiet_seq(said: Sequence[tuple[int, datetime]], now: datetime | None, seconds: float) -> int:
    """The last seq that was followed by a pause; 0: none was. Pure.

    Args:
        said: Seqs and times of messages, in order.
        now: The time, which ends a pause too; None: the last message has just been said, whatever
            its own time is.
        seconds: What counts as a pause.
    """
    after = now
    for seq, at in reversed(said):
        if after is not None and (after - at).total_seconds() >= seconds:
            return seq
        after = at
    return 0


@dataclass(frozen=True, slots=True)
class Processed:
    """What was done for a session.

    Attributes:
        absorbed: What each block absorbed, or why it could not.
        again: Seconds until somebody should look at it again; 0 for at once, None where nothing is
            left to do until it changes.
    """

    absorbed: list[Absorbed]
    again: float | None = None


class SessionWork:
    """Finishes a session's deletion, cuts its window, refreshes its summary, feeds its blocks, and
    shortens its log.

    Args:
        store: The log.
        leases: One worker a session.
        compaction: Cuts windows.
        absorber: Feeds blocks.
        retention: Shortens logs.
        erase: Finishes the deletion of a session, by its id.
        absorb: When blocks absorb, by the strategy's word.
        idle_minutes: Silence after which a session is absorbed wholly; None for never.
        backlog: Sessions that are absorbed wholly whatever that word is.
        recent: Reads what a session's window holds.
        quiet: The blocks that each time ask a model: they wait for a full batch, and at every
            update for a pause.
        quiet_seconds: The pause; 0: they do not wait.
        full_tokens: What fills a batch.

    Attributes:
        backlog: As given.
    """

    def __init__(
        self,
        store: SessionStore,
        leases: Leases,
        compaction: Compaction,
        absorber: Absorber,
        retention: Retention,
        erase: Callable[[str], object],
        absorb: Absorb,
        idle_minutes: float | None,
        backlog: Backlog,
        recent: Callable[[Head], list[Entry]],
        quiet: Collection[str] = (),
        quiet_seconds: float = 0.0,
        full_tokens: int = BATCH_TOKENS,
    ) -> None:
        self.backlog = backlog
        self._recent = recent
        waits = isinstance(absorb, str) and quiet_seconds
        self._quiet = frozenset(quiet) if waits else frozenset()
        self._quiet_seconds = quiet_seconds
        self._full_tokens = full_tokens
        self._store = store
        self._leases = leases
        self._compaction = compaction
        self._absorber = absorber
        self._retention = retention
        self._erase = erase
        self._absorb: Absorb = absorb
        self._idle_minutes = idle_minutes
        pauses = [quiet_seconds if name in self._quiet else 0.0 for name in absorber.blocks]
        self._wait = longest_wait(absorb, pauses, idle_minutes, retention.seconds)

    def needed(self, head: Head) -> bool:
        """Whether an update leaves something to do now."""
        return self._compaction.overflows(head) or self._feedable(head)

    def within(self, newest: datetime) -> float:
        """In how many seconds to look at a session that its newest message, of that time, leaves
        nothing to do for: it may have been said long ago."""
        return idle_wait(newest, datetime.now(UTC), self._wait / 60)

    def announce(self, head: Head) -> None:
        """Have a session looked at now, by whoever works next: its append asked for no hurry."""
        if self._wait:
            self._store.schedule(head, 0)

    def after_update(self, head: Head) -> Head:
        """Do what an update leaves to do, now; the head afterwards.

        What fails is logged, and tried again later. The exception of a signal, such as a limit of
        time, is no failure, and the caller's.
        """
        if self._compaction.is_brief and not self._store.remote:
            # made here: it asks nobody, and takes less than another thread takes to wake up
            with suppress(AgentMemoryError):  # met again by `_settle`, which tells it
                head = self._compaction.compact(head)
                if not (self._feedable(head) or self._retention.removes(head)):
                    return head
        return self._settle(head)

    @apart
    def _settle(self, head: Head) -> Head:
        """The same on a thread to which no signals come: whatever fails here has failed."""
        try:
            if self._compaction.only_cuts:  # no lease is needed, and the head not read again
                head = self._compact(head)
                if not self._feedable(head):
                    return self._retention.shorten(head)
            self.announce(head)
            self.process(head.session_id)
            return head_now(self._store, head) or head
        except Exception:  # the messages are stored: the next call does what is due
            logger.exception("session %r not processed; it will be tried again", head.session_id)
            return head

    def put_off(self, head: Head) -> bool:
        """Have a session that is due looked at later, if all that there is to do for it is to wait.

        It needs no lease, of which taking and giving back are most of what a look costs: nothing is
        changed of a session that is not as it was looked at.

        Returns:
            Whether that was so; else it is to be processed.
        """
        if head.deleting or self._compaction.overflows(head) or self._retention.removes(head):
            return False
        again = self._again(head, self._idle_wait(head))
        return again != 0 and self._store.schedule(head, again)

    def prepare(self, heads: Sequence[Head]) -> None:
        """Told which sessions are absorbed next; what can be done for all at once is done."""
        self._absorber.prepare(heads)

    @apart
    def process(
        self,
        session_id: str,
        *,
        everything: bool = False,
        scheduled: bool = False,
        down_to: int | None = None,
        user_id: str | None = None,
    ) -> Processed:
        """Do what is due for a session, now; what fails is tried again later, less often each time.

        Args:
            session_id: The session.
            everything: Absorb all that is pending, by blocks that wait after a failure too, and
                refresh a waiting summary. A session that cannot be erased is left for later. Waits
                for another worker to let go of the session; else nothing is done while one holds
                it.
            scheduled: One call among those for many sessions: each block absorbs one batch at
                most, so that other sessions get theirs, and a session that fell silent is
                absorbed wholly.
            down_to: Cut its window to so many tokens; waits as with `everything`.
            user_id: Whose it has to be, if anybody's.

        Returns:
            What was done. With `everything` or `scheduled`, also when to look again, which the
            store knows too.

        Raises:
            SessionOfAnotherUser: It is another's than the user named.
        """
        waiting = everything or down_to is not None
        with self._leases.hold(session_id, waiting=waiting) as lease:
            head = self._store.head(session_id)
            if head is not None and not head.deleting:
                check_owner(head, user_id)
                if lease is None and down_to is not None:
                    raise busy(session_id, "Nothing was pruned; try again.")
                return self._process(
                    head, lease, everything=everything, scheduled=scheduled, down_to=down_to
                )
        self.backlog.done(session_id, None)
        if head is not None:
            self._finish_deletion(session_id, raising=not everything)
        return Processed([])

    def _process(
        self,
        head: Head,
        lease: Lease | None,
        *,
        everything: bool,
        scheduled: bool,
        down_to: int | None,
    ) -> Processed:
        session_id = head.session_id
        if lease is None:
            return Processed(self._refused(head) if everything else [], _HELD_SECONDS)
        head = self._compact(head, down_to)
        idle = self._idle_wait(head) if scheduled else None
        now = datetime.now(UTC) if scheduled else None
        targets = self._waiting(head, 0.0 if everything else idle, now)
        if not everything:
            targets = self._awake(session_id, targets)
        done = self._absorber.absorb(head, targets, lease, most_batches=1 if scheduled else 0)
        after = self._store.head(session_id) or head
        self.backlog.done(session_id, after)
        if everything:
            after = self._compaction.refresh_summary(after, insist=True)
        after = self._retention.shorten(after)
        # where messages came meanwhile, the session is due
        if after.end != head.end or not (everything or scheduled):
            return Processed(done)
        again = self._again(after, self._idle_wait(after) if everything else idle)
        if everything or again != 0:  # a worker goes on at once without asking the store
            self._store.schedule(after, again)
        return Processed(done, again)

    @apart
    def absorb(self, session_id: str, block: str, *, anew: bool = False) -> str | None:
        """Have one block absorb all of a session, and do nothing else for it.

        Args:
            session_id: The session.
            block: The block's name.
            anew: From its beginning. Where another worker holds on to it, that one begins anew.

        Returns:
            Why it could not, or None.

        Raises:
            LeaseLost: The session was taken over before its cursor was put back.
        """
        with self._leases.hold(session_id, waiting=True) as lease:
            head = self._store.head(session_id)
            if head is None or head.deleting:
                return None
            if anew:
                self._absorber.rewind(block, lease, session_id)
            if lease is None:
                return f"{_HELD}, and is to absorb it anew" if anew else _HELD
            if anew:
                head = self._store.head(session_id) or head
            fed = self._absorber.absorb(head, {block: head.end}, lease)
            error = next((one.error for one in fed if one.error), None)
            if error and anew:  # a worker goes on with it
                self._store.schedule(self._store.head(session_id) or head, 0)
            return error

    @apart
    def retry(self, letter: DeadLetter) -> Absorbed:
        """Have a block absorb a dead letter after all."""
        with self._leases.hold(letter.session_id, waiting=True) as lease:
            if lease is not None:
                return self._absorber.redeliver(letter, lease)
        return Absorbed(letter.session_id, letter.block, letter.first, letter.first - 1, _HELD)

    def _finish_deletion(self, session_id: str, *, raising: bool) -> None:
        try:
            self._erase(session_id)
        except Exception:
            if raising:
                raise
            # what can't be erased now must not keep other sessions waiting
            logger.exception("session %r not erased; it will be tried again", session_id)

    def _compact(self, head: Head, down_to: int | None = None) -> Head:
        try:
            compacted = self._compaction.compact(head, down_to)
            # a fallback summary that was just made is not refreshed in the same breath
            return compacted if compacted is not head else self._compaction.refresh_summary(head)
        except Damaged as error:
            leave_out(error)
            return head
        except Exception:  # a strategy's bug must not keep the blocks from absorbing
            logger.exception("session %r not compacted; it will be tried again", head.session_id)
            return head

    def _refused(self, head: Head) -> list[Absorbed]:
        """What each block could not absorb, since another worker holds the session."""
        behind = [(name, head.cursors.get(name, 0)) for name in self._waiting(head, 0.0)]
        return [Absorbed(head.session_id, name, at, at, _HELD) for name, at in behind]

    def _feedable(self, head: Head) -> bool:
        """Whether a block is due to absorb the session and may be tried."""
        waiting = self._behind(head, None, None)
        return any(not self._absorber.wait(head.session_id, name) for name, _ in waiting)

    def _awake(self, session_id: str, targets: dict[str, int]) -> dict[str, int]:
        """The blocks that need not wait after a failure."""
        return {
            name: seq for name, seq in targets.items() if not self._absorber.wait(session_id, name)
        }

    def _waiting(
        self, head: Head, idle: float | None, now: datetime | None = None
    ) -> dict[str, int]:
        """The blocks that are due to absorb the session, in order, each with the seq to reach."""
        return dict(self._behind(head, idle, now))

    def _behind(
        self, head: Head, idle: float | None, now: datetime | None
    ) -> Iterator[tuple[str, int]]:
        """The same, one after the other: each update asks whether there is one."""
        for name in self._absorber.blocks:
            seq = self._target(head, name, idle, now)
            if seq > head.cursors.get(name, 0):
                yield name, seq

    def _target(self, head: Head, block: str, idle: float | None, now: datetime | None) -> int:
        def total_at(seq: int) -> int:
            found = self._store.pick(head.session_id, [seq]) if seq else []
            return found[0].total if found else 0

        if idle == 0 or self.backlog.holds(head.session_id, block):
            return head.end
        cursor = head.cursors.get(block, 0)
        reach = target_seq(head, cursor, self._absorb, total_at)
        if block not in self._quiet or reach <= cursor:
            return reach
        if reach - cursor >= BATCH_ENTRIES:
            return reach
        reached = head.total if reach == head.end else total_at(reach)
        if reached - total_at(cursor) >= self._full_tokens:
            return reach
        return self._after_pause(head, cursor, now) if self._absorb == "every_update" else cursor

    def _after_pause(self, head: Head, cursor: int, now: datetime | None) -> int:
        """The seq up to which a block is to absorb that waits for pauses."""
        try:
            waiting = [entry for entry in self._recent(head) if entry.seq > cursor]
        except Damaged:  # what can be read around it is
            return head.end
        said = [(entry.seq, entry.created_at) for entry in waiting]
        return max(head.start, quiet_seq(said, now, self._quiet_seconds))

    def _pause_wait(self, head: Head) -> float | None:
        """Seconds until a pause is long enough; None where no block waits for one."""
        waits = self._quiet & self._absorber.blocks.keys() if self._absorb != "overflow" else ()
        if not any(head.lag(name) for name in waits):
            return None
        newest = self._store.pick(head.session_id, [head.end])
        if not newest:
            return None
        return idle_wait(newest[0].created_at, datetime.now(UTC), self._quiet_seconds / 60)

    def _idle_wait(self, head: Head) -> float | None:
        """Seconds until the session counts as idle; None where that makes no difference."""
        if self._idle_minutes is None or not any(head.lag(name) for name in self._absorber.blocks):
            return None
        newest = self._store.pick(head.session_id, [head.end])
        if not newest:
            return None
        return idle_wait(newest[0].created_at, datetime.now(UTC), self._idle_minutes)

    def _again(self, head: Head, idle: float | None) -> float | None:
        waiting = self._waiting(head, idle, datetime.now(UTC))
        times = [self._absorber.wait(head.session_id, name) for name in waiting]
        refresh = self._compaction.refresh_wait(head)
        times += [refresh] if refresh is not None else []
        expiry = self._retention.wait(head)
        times += [expiry] if expiry is not None else []
        pause = self._pause_wait(head)
        times += [pause] if pause else []
        times += [idle] if idle and any(map(head.lag, self._absorber.blocks)) else []
        return min(times, default=None)
