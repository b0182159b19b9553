"""Does the pending work of a session, for updates, background threads, workers and `flush`.

A replay rebuilds a block from the logs, session by session. It can be resumed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from agent_memory.core.records import Absorbed, DeadLetter, Head, Lease
from agent_memory.core.threads import off_main_thread
from agent_memory.engine.paging import all_heads, head_now
from agent_memory.engine.processing.absorb import BATCH_ENTRIES, BATCH_TOKENS
from agent_memory.engine.system_records import Kind, SystemRecords
from agent_memory.errors import AgentMemoryError, Damaged, LeaseLost
from agent_memory.stores.damage import leave_out
from agent_memory.stores.kernel.log import check_owner
from agent_memory.strategies.base import Absorb

if TYPE_CHECKING:
    from agent_memory.engine.assembly import Components
    from agent_memory.engine.processing.worker import Backlog
    from agent_memory.engine.stats import Progress

logger = logging.getLogger(__name__)

_HELD = "another worker holds the session"
_HELD_SECONDS = 1.0
"""Seconds until the next check of a session that another worker holds."""
_LONGEST_WAIT = 600.0
"""Maximum seconds until a changed session is checked, since a killed process may leave work."""


def target_seq(head: Head, cursor: int, absorb: Absorb, total_at: Callable[[int], int]) -> int:
    """Return the seq up to which a block should absorb the session now. Pure.

    A seq at or below the block's cursor means that there is nothing to absorb yet. `total_at`
    returns the running token total at a seq. It is called only if `absorb` is a number of tokens.
    """
    if absorb == "every_update":
        return head.end
    if absorb != "overflow" and cursor < head.end and head.total - total_at(cursor) >= absorb:
        return head.end
    return head.start  # up to the last message that left the window


def longest_wait(
    absorb: Absorb, waits: Sequence[float], idle_minutes: float | None, retention: float | None
) -> float:
    """Return the seconds after which a worker must check a session that got a message. Pure.

    The wait avoids a check after each message. `waits` has the seconds of silence that each block
    requires before it absorbs. `waits` counts only with "every_update". If this process has no
    blocks, the result is 0, because other processes may have blocks. `retention` is in seconds.
    """
    if not waits:
        return 0.0
    times = [_LONGEST_WAIT, *(waits if absorb == "every_update" else ())]
    times += [idle_minutes * 60] if idle_minutes is not None else []
    times += [retention] if retention is not None else []
    return min(times)


def idle_wait(newest: datetime, now: datetime, minutes: float) -> float:
    """Return the seconds until a session has been silent for `minutes`, at least 0. Pure.

    `newest` is the time of the newest message. A time in the future counts as `now`.
    """
    silent = max(0.0, (now - newest).total_seconds())
    return max(0.0, minutes * 60 - silent)


def quiet_seq(times: Sequence[tuple[int, datetime]], now: datetime | None, seconds: float) -> int:
    """Return the last seq that was followed by a pause of `seconds`. 0 if there is none. Pure.

    The time from the last message to `now` counts as a pause. If `now` is None, no pause follows
    the last message.
    """
    after = now
    for seq, at in reversed(times):
        if after is not None and (after - at).total_seconds() >= seconds:
            return seq
        after = at
    return 0


@dataclass(frozen=True, slots=True)
class Processed:
    absorbed: list[Absorbed]  # the result of each block
    # The seconds until the next check of the session. 0 means immediately. None means that no work
    # is left until the session changes.
    again: float | None = None


class SessionWork:
    """Does the pending work of a session: deletion, compaction, summary, absorption, retention.

    All pending messages are absorbed after `idle_minutes` of silence (None means never), or while
    the session is in the `backlog`. The blocks in `_quiet` call a model for each batch. They
    therefore wait for a full batch of `_full_tokens` or `BATCH_ENTRIES`. With "every_update", a
    pause of `quiet_seconds` ends the wait too. If `quiet_seconds` is 0, no block waits.
    """

    def __init__(self, parts: Components, backlog: Backlog) -> None:
        config, blocks = parts.config, parts.absorber.blocks
        self._parts, self._store, self._leases = parts, parts.store, parts.leases
        self._compaction, self._absorber = parts.compaction, parts.absorber
        self._retention, self.backlog = parts.retention, backlog
        self._absorb: Absorb = config.strategy.absorbs
        self._idle_minutes, self._quiet_seconds = config.idle_minutes, config.quiet_seconds
        self._full_tokens = min(BATCH_TOKENS, config.max_tokens // 2)
        waits = isinstance(self._absorb, str) and self._quiet_seconds
        self._quiet = {name for name, block in blocks.items() if waits and block.language_models}
        pauses = [self._quiet_seconds if name in self._quiet else 0.0 for name in blocks]
        self._wait = longest_wait(self._absorb, pauses, self._idle_minutes, self._retention.seconds)

    def needed(self, head: Head) -> bool:
        """Return whether an update leaves work to do now."""
        return self._compaction.overflows(head) or self._feedable(head)

    def within(self, newest: datetime) -> float:
        """Return the seconds until a session must be checked whose newest message has this time."""
        return idle_wait(newest, datetime.now(UTC), self._wait / 60)

    def announce(self, head: Head) -> None:
        """Make a session due now, if its append has scheduled it for later."""
        if self._wait:
            self._store.schedule(head, 0)

    def after_update(self, head: Head) -> Head:
        """Do the work that follows an update now, and return the new head.

        A failure is logged, and the work is tried again later. An exception of a signal handler,
        such as a time limit, is raised to the caller.
        """
        if self._compaction.is_brief and not self._store.remote:
            # on this thread, because such a cut calls no model and is faster than waking a thread
            with suppress(AgentMemoryError):  # `_settle` meets the same error, and reports it
                head = self._compaction.compact(head)
                if not (self._feedable(head) or self._retention.removes(head)):
                    return head
        return self._settle(head)

    @off_main_thread
    def _settle(self, head: Head) -> Head:
        """Do the work on a thread without signals, so that each exception is a real failure."""
        try:
            if self._compaction.only_cuts:  # a cut needs no lease and no new head
                head = self._compact(head)
                if not self._feedable(head):
                    return self._retention.shorten(head)
            self.announce(head)
            self.process(head.session_id)
            return head_now(self._store, head) or head
        except Exception:  # the messages are stored, and the next call does the pending work
            logger.exception("session %r not processed; it will be tried again", head.session_id)
            return head

    def _put_off(self, session_id: str) -> Processed | None:
        """Schedule a due session for later if it only has to wait. Otherwise return None.

        No lease is taken, since it would dominate the cost. The write is skipped if the session
        changed meanwhile.
        """
        head = self._store.head(session_id)
        if head is None or head.deleting:
            return None
        self.backlog.done(session_id, head)
        if self._compaction.overflows(head) or self._retention.removes(head):
            return None
        again = self._again(head, self._idle_wait(head))
        return Processed([], again) if again != 0 and self._store.schedule(head, again) else None

    @off_main_thread
    def process(
        self,
        session_id: str,
        *,
        everything: bool = False,
        scheduled: bool = False,
        down_to: int | None = None,
        user_id: str | None = None,
    ) -> Processed:
        """Do the pending work of a session now. Failed work is tried again after growing pauses.

        Args:
            everything: Absorb all pending messages, even by blocks that wait after a failure, and
                refresh a pending summary. Wait for a worker that holds the session. Log a failed
                erasure instead of raising it.
            scheduled: A worker makes this call for each due session in turn, so each block absorbs
                at most one batch.
            down_to: Cut the window to this number of tokens. Wait as with `everything`.
            user_id: The user that must own the session. None allows any user.

        Returns:
            The work done: none if another worker still holds the session. With `everything` or
            `scheduled`, `again` has the seconds until the next check.

        Raises:
            SessionOfAnotherUser: The session belongs to another user.
            StoreUnavailable: With `down_to`, a worker did not release the session.
        """
        if scheduled:
            with suppress(Exception):  # the work below meets the same error, and reports it
                if (put_off := self._put_off(session_id)) is not None:
                    return put_off
        refusal = None if down_to is None else "Nothing was pruned; try again."
        with self._leases.hold(session_id, waiting=everything, consequence=refusal) as lease:
            head = self._store.head(session_id)
            if head is not None and not head.deleting:
                check_owner(head, user_id)
                return self._process(head, lease, everything, scheduled, down_to)
        self.backlog.done(session_id, None)
        if head is not None:
            self._finish_deletion(session_id, raising=not everything)
        return Processed([])

    def _process(
        self,
        head: Head,
        lease: Lease | None,
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
        if not everything:  # blocks that wait after a failure are left out
            wait = self._absorber.wait
            targets = {name: seq for name, seq in targets.items() if not wait(session_id, name)}
        if not (everything or scheduled):
            taken = self.backlog.takes
            targets = {name: seq for name, seq in targets.items() if not taken(head, name, seq)}
        done = self._absorber.absorb(head, targets, lease, most_batches=1 if scheduled else 0)
        after = self._store.head(session_id) or head
        self.backlog.done(session_id, after)
        if everything:
            after = self._compaction.refresh_summary(after, insist=True)
        after = self._retention.shorten(after)
        # new messages have made the session due again
        if after.end != head.end or not (everything or scheduled):
            return Processed(done)
        again = self._again(after, self._idle_wait(after) if everything else idle)
        if everything or again != 0:  # at 0, the worker continues without a schedule
            self._store.schedule(after, again)
        return Processed(done, again)

    @off_main_thread
    def absorb_again(self, session_id: str, block: str) -> str | None:
        """Have one block absorb a session from the beginning. Return the block's error, or None.

        If another worker does not release the session, that worker absorbs it later. Raise
        `LeaseLost` if another worker took the session over before the cursor was reset.
        """
        with self._leases.hold(session_id, waiting=True) as lease:
            head = self._store.head(session_id)
            if head is None or head.deleting:
                return None
            self._absorber.rewind(block, lease, session_id)
            if lease is None:
                return f"{_HELD}, and will absorb it again"
            head = self._store.head(session_id) or head
            fed = self._absorber.absorb(head, {block: head.end}, lease)
            error = next((result.error for result in fed if result.error), None)
            if error:  # the session becomes due: a worker tries again
                self._store.schedule(self._store.head(session_id) or head, 0)
            return error

    @off_main_thread
    def retry(self, letter: DeadLetter) -> Absorbed:
        with self._leases.hold(letter.session_id, waiting=True) as lease:
            if lease is not None:
                return self._absorber.redeliver(letter, lease)
        return Absorbed(letter.session_id, letter.block, letter.first, letter.first - 1, _HELD)

    def _finish_deletion(self, session_id: str, *, raising: bool) -> None:
        try:
            self._parts.deletion.finish(session_id)
        except Exception:
            if raising:
                raise
            # an erasure that fails must not block other sessions
            logger.exception("session %r not erased; it will be tried again", session_id)

    def _compact(self, head: Head, down_to: int | None = None) -> Head:
        try:
            compacted = self._compaction.compact(head, down_to)
            # a fallback summary that was just made is not refreshed immediately
            return compacted if compacted is not head else self._compaction.refresh_summary(head)
        except Damaged as error:
            leave_out(error)
            return head
        except Exception:  # a strategy's bug must not stop absorption
            logger.exception("session %r not compacted; it will be tried again", head.session_id)
            return head

    def _refused(self, head: Head) -> list[Absorbed]:
        """Return a result for each due block, with the error that another worker is busy."""
        behind = [(name, head.cursors.get(name, 0)) for name in self._waiting(head, 0.0)]
        return [Absorbed(head.session_id, name, at, at, _HELD) for name, at in behind]

    def _feedable(self, head: Head) -> bool:
        waiting = self._waiting(head, None)
        return any(not self._absorber.wait(head.session_id, name) for name in waiting)

    def _waiting(
        self, head: Head, idle: float | None, now: datetime | None = None
    ) -> dict[str, int]:
        """Return the blocks that are due to absorb the session, each with its target seq."""
        reach = {name: self._target(head, name, idle, now) for name in self._absorber.blocks}
        return {name: seq for name, seq in reach.items() if seq > head.cursors.get(name, 0)}

    def _target(self, head: Head, block: str, idle: float | None, now: datetime | None) -> int:
        def total_at(seq: int) -> int:
            entries = self._store.pick(head.session_id, [seq]) if seq else []
            return entries[0].total if entries else 0

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
        """Return the target seq of a block that waits for pauses."""
        try:
            waiting = [entry for entry in self._parts.windows.of(head) if entry.seq > cursor]
        except Damaged:  # absorption reads around the damage
            return head.end
        timestamps = [(entry.seq, entry.created_at) for entry in waiting]
        return max(head.start, quiet_seq(timestamps, now, self._quiet_seconds))

    def _idle_wait(self, head: Head) -> float | None:
        """Return the seconds until the session counts as idle. None if no block waits for that."""
        return self._silence_wait(head, self._absorber.blocks, self._idle_minutes)

    def _silence_wait(
        self, head: Head, blocks: Collection[str], minutes: float | None
    ) -> float | None:
        """Return the seconds until `minutes` of silence. None if no block waits for that."""
        if minutes is None or not any(map(head.lag, blocks)):
            return None
        newest = self._store.pick(head.session_id, [head.end])
        return idle_wait(newest[0].created_at, datetime.now(UTC), minutes) if newest else None

    def _again(self, head: Head, idle: float | None) -> float | None:
        waiting = self._waiting(head, idle, datetime.now(UTC))
        times = [self._absorber.wait(head.session_id, name) for name in waiting]
        others = [self._compaction.refresh_wait(head), self._retention.wait(head)]
        if self._absorb != "overflow":
            others += [self._silence_wait(head, self._quiet, self._quiet_seconds / 60) or None]
        others += [idle or None] if any(map(head.lag, self._absorber.blocks)) else []
        return min([*times, *(wait for wait in others if wait is not None)], default=None)


def unfinished_replays(records: SystemRecords) -> list[str]:
    """Return a message for each replay that is running or was interrupted."""
    return [
        f"A replay of {block} is running or was interrupted after {begun['done']} sessions. If it "
        f"was interrupted, `agent-memory replay {block}` resumes it."
        for block, begun in records.read(Kind.REPLAYS).items()
    ]


def replay(parts: Components, block: str) -> Iterator[Progress]:
    """Have a block absorb all sessions again. Other calls work meanwhile.

    The progress is stored, so that an interrupted replay resumes after its last finished session.
    """
    from agent_memory.engine.stats import Progress

    records = parts.records
    begun = records.read(Kind.REPLAYS).get(block, {"after": None, "done": 0})
    after, done = begun["after"], begun["done"]
    records.write(Kind.REPLAYS, block, after=after, done=done)
    total = parts.store.counts().sessions
    for head in all_heads(parts.store, after=after):
        error = _absorb_again(parts.work, block, head.session_id)
        done += 1
        records.write(Kind.REPLAYS, block, after=head.session_id, done=done)
        yield Progress(block, head.session_id, done, max(done, total), error)
    records.drop(Kind.REPLAYS, block)


def _absorb_again(work: SessionWork, block: str, session_id: str) -> str | None:
    while True:
        with suppress(LeaseLost):  # another worker took over before the cursor was reset
            return work.absorb_again(session_id, block)
