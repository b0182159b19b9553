"""Passes the messages of logs to long-term blocks.

A block's cursor in a session is the last seq that it has absorbed. The cursor moves only after the
block has stored a batch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from math import inf
from typing import TYPE_CHECKING

from agent_memory.core.cache import Cache
from agent_memory.core.limits import quoted
from agent_memory.core.notices import error_text
from agent_memory.core.records import Absorbed, DeadLetter, Entry, Head, Lease, Scope
from agent_memory.core.threads import unwanted
from agent_memory.core.tracing import describe_absorb, operation
from agent_memory.engine.processing.failures import Failures, is_temporary
from agent_memory.engine.recall.runner import Backoff, TimeLimited, in_parallel, resolve
from agent_memory.errors import ConfigError, LeaseLost, ProcessEnds, StoreError, Undecryptable
from agent_memory.ltm_blocks.base import Block
from agent_memory.models.usage import Account
from agent_memory.stores.base import SessionStore
from agent_memory.stores.damage import read_around
from agent_memory.stores.kernel.log import LOST, decrypted

if TYPE_CHECKING:
    from agent_memory.engine.assembly import Components

logger = logging.getLogger(__name__)

BATCH_ENTRIES = 160
BATCH_TOKENS = 10_000

_MOST_BATCHES = 10_000
_MOST_PREPARED = 1_000  # approximate maximum of messages that are read ahead into memory
_TAKEN_OVER = "another worker took the session over"


def check_block(name: str, absorbing: Collection[str]) -> None:
    """Raise `ConfigError` if no absorbing block has this name."""
    if not isinstance(name, str) or name not in absorbing:
        names = ", ".join(absorbing) or "none"
        raise ConfigError(
            f"No block named {quoted(name)} absorbs the log. Blocks that absorb it: {names}."
        )


def next_batch(
    store: SessionStore, session_id: str, cursor: int, target: int
) -> tuple[list[Entry], int]:
    """Return a block's next batch: the entries after its cursor, and the seq where the batch ends.

    This seq is at most `target`. System messages are left out.
    """
    read, reached = read_around(store, session_id, cursor, min(BATCH_ENTRIES, target - cursor))
    read = [entry for entry in read if entry.seq <= target]
    if not read:  # the entries were removed or are damaged
        return [], target if reached == cursor else min(reached, target)
    tokens, last = 0, cursor
    for entry in read:
        tokens += entry.tokens
        if last > cursor and tokens > BATCH_TOKENS:
            break
        last = entry.seq
    return without_system([entry for entry in read if entry.seq <= last]), last


class Absorber:
    """Lets blocks absorb the pending messages of sessions. Each block has its own cursor."""

    def __init__(self, parts: Components) -> None:
        self._parts, self._store, self._config = parts, parts.store, parts.config
        self._leases, self._dead_letters = parts.leases, parts.dead_letters
        self.blocks = {name: block for name, block in parts.blocks.items() if block.absorbs}
        self.failures = Failures(self._dead_letters, self.blocks, self._config.recall_timeout)
        self._backoff = Backoff()
        # by block and session, the maximum number of entries in the next batch after a failed one:
        # one bad message must not keep the others of its batch from being absorbed
        self._most_entries: Cache[tuple[str, str], int] = Cache(_MOST_BATCHES)
        self._time_limited = TimeLimited()

    def wait(self, session_id: str, block: str) -> float:
        """Return the seconds until a block may absorb this session. 0 means immediately.

        A block waits after repeated failures, and after a spending limit refused a model call.
        """
        return self._backoff.seconds(block, (block, session_id))

    def prepare(self, heads: Sequence[Head]) -> None:
        """Call `Block.prepare` with the first pending messages of several sessions.

        A call may contain messages of several users, so its cost cannot be charged to one user.
        With spending limits per user, nothing is prepared.
        """
        if self._config.spending_limits.per_user.is_set:
            return
        for name, block in self.blocks.items():
            if type(block).prepare is Block.prepare or self._backoff.seconds(name):
                continue
            try:
                call = partial(block.prepare, self._first_batches(heads, name))
                seconds = self._config.absorb_timeout
                self._time_limited.run(name, call, seconds, lambda: None)
            except Exception as error:  # noqa: BLE001 - absorption meets and reports the error
                logger.info("block %r could not prepare: %s", name, error_text(error))

    def _first_batches(self, heads: Sequence[Head], name: str) -> list[Entry]:
        waiting: list[Entry] = []
        for head in heads:
            cursor = head.cursors.get(name, 0)
            if cursor < head.end and len(waiting) < _MOST_PREPARED:
                waiting += next_batch(self._store, head.session_id, cursor, head.end)[0]
        return waiting

    def absorb(
        self, head: Head, targets: Mapping[str, int], lease: Lease, *, most_batches: int = 0
    ) -> list[Absorbed]:
        """Have blocks absorb pending messages, in parallel. Return one result per block with work.

        A block that fails keeps its cursor and is tried again after a growing pause. A batch that
        fails repeatedly becomes a dead letter. If the caller no longer waits for the result, each
        block stops after its current batch.

        `head` was read under `lease`. `targets` has the last seq to absorb, by block. A block
        absorbs at most `most_batches` batches. 0 is no maximum.
        """
        most = most_batches or inf
        calls = [
            partial(Absorption(self, name, head, lease).run, upto, most, unwanted())
            for name, upto in targets.items()
        ]
        return [fed for fed in in_parallel(calls) if fed is not None]

    def redeliver(self, letter: DeadLetter, lease: Lease) -> Absorbed:
        """Have a block absorb the batch of a dead letter again."""
        name, session_id, first = letter.block, letter.session_id, letter.first
        head = self._store.head(session_id)
        still = [dead for dead in self._dead_letters.dead(name, session_id) if dead.first == first]
        if head is None or head.deleting or not still:
            return Absorbed(session_id, name, first, letter.last)
        last, block = still[0].last, self.blocks[name]
        batch = without_system(read_around(self._store, session_id, first - 1, last - first + 1)[0])
        message, account = _TAKEN_OVER, Account("extraction", head.user_id)

        def update() -> None:
            with account.charged():
                self._update(block, head, lease, batch)

        try:
            try:
                if batch:
                    self._limited(block, head, update)
                self._dead_letters.clear(name, first, lease)
                return Absorbed(session_id, name, first, last, usage=account.usage)
            except LeaseLost:
                raise
            except Exception as error:  # noqa: BLE001 - then the batch stays a dead letter
                message = error_text(account.refusal or error)
                if account.refusal is None:
                    self._dead_letters.count(name, first, last, message, lease)
        except LeaseLost:
            self.undo_stale_writes(name, head, lease)
        return Absorbed(session_id, name, first, first - 1, message, account.usage)

    def rewind(self, block: str, lease: Lease | None, session_id: str) -> None:
        """Set a block's cursor to the beginning of a session, and schedule the session."""
        while (head := self._store.head(session_id)) and not head.deleting:
            back = self._store.move(replace(head, cursors={**head.cursors, block: 0}), lease=lease)
            if back:
                self._store.schedule(back, 0)
                return

    def forget(self, block: Block, head: Head, scope: Scope) -> None:
        """Have a block delete the records of a scope, within the time limit of a batch.

        Raise `LeaseLost` if another worker took the session over. The block absorbs it again.
        """
        failed: Exception | None = None
        try:
            self._limited(block, head, lambda: resolve(block.delete(scope)))
        except LeaseLost:  # the block's own store raised it
            raise
        except Exception as error:  # noqa: BLE001 - raised below
            failed = error
        if scope.lease is not None and not self._held(scope.lease):
            self.undo_stale_writes(block.name, head)
            raise LeaseLost(LOST.format(head.session_id)) from failed
        if failed is not None:
            raise failed

    def undo_stale_writes(self, block: str, head: Head, lease: Lease | None = None) -> None:
        """Undo writes of a block after another worker took the session over.

        The block deletes its records of the session and absorbs the session from the beginning.
        This call first waits until the other worker releases the session: that worker's batch would
        otherwise move the cursor forward again. `lease` is the caller's lease, which may be lost.
        """
        session_id = head.session_id
        try:
            with self._reacquired(session_id, lease) as held:
                self.rewind(block, held, session_id)
                scope = Scope(head.user_id, session_id, head.expired, held)
                resolve(self.blocks[block].delete(scope))
            if held is None:  # the session is gone, or its lease was not released
                self.rewind(block, None, session_id)
        except Exception:  # on a thread of a block, nobody would handle the error
            logger.exception("block %r may hold outdated records of session %r", block, session_id)

    def _reacquired(
        self, session_id: str, lease: Lease | None
    ) -> AbstractContextManager[Lease | None]:
        if lease is not None and self._leases.renew(lease):
            return nullcontext(lease)
        return self._leases.hold(session_id, waiting=True)

    def _update(self, block: Block, head: Head, lease: Lease, batch: Sequence[Entry]) -> None:
        scope = Scope(head.user_id, head.session_id, lease=lease)
        with operation("upsert_memory", self._config.namespace, head.session_id) as span:
            describe_absorb(span, block.name, len(batch))
            resolve(block.update(scope, batch))

    def _limited(self, block: Block, head: Head, call: Callable[[], None]) -> None:
        refused: list[LeaseLost] = []

        def attempt() -> None:
            try:
                call()
            except LeaseLost as error:
                refused.append(error)
                raise

        def late() -> None:
            if not refused:  # the block's own store did not refuse the write
                self.undo_stale_writes(block.name, head)

        self._time_limited.run(block.name, attempt, self._config.absorb_timeout, late)

    def _held(self, lease: Lease) -> bool:
        try:
            return self._leases.renew(lease)
        except StoreError:  # the store is down: assume that no other worker has taken over
            return True


class Absorption:
    """The absorption of a session by one block, under a lease."""

    def __init__(self, absorber: Absorber, name: str, head: Head, lease: Lease) -> None:
        self._absorber, self._parts, self._store = absorber, absorber._parts, absorber._store
        self._name, self._block = name, absorber.blocks[name]
        self._head, self._lease, self._key = head, lease, (name, lease.session_id)
        self._account = Account("extraction", head.user_id)

    @property
    def _cursor(self) -> int:
        return self._head.cursors.get(self._name, 0)

    def run(self, upto: int, most: float, is_unwanted: Callable[[], bool]) -> Absorbed | None:
        """Have the block absorb batches up to a seq. Return None if there is nothing to absorb."""
        begun, target, error, fed = self._cursor, min(upto, self._head.end), None, 0
        if begun >= target:
            return None
        while self._cursor < target and error is None and fed < most:
            if fed and is_unwanted():
                break
            error = self._feed(target)
            fed += 1
        usage = self._account.usage
        return Absorbed(self._lease.session_id, self._name, begun + 1, self._cursor, error, usage)

    def _feed(self, target: int) -> str | None:
        """Have the block absorb one batch and move its cursor. Return the error, or None."""
        absorber, head, lease, cursor = self._absorber, self._head, self._lease, self._cursor
        begun = wrote = False

        def work() -> None:
            nonlocal begun, wrote
            if not cursor:  # the session may have been absorbed before, for another user
                self._begin()
                wrote = True
            begun = True
            if batch:
                with self._account.charged():
                    absorber._update(self._block, head, lease, batch)
                wrote = True

        try:
            end = min(target, cursor + (absorber._most_entries.find(self._key) or BATCH_ENTRIES))
            batch, last = next_batch(self._store, lease.session_id, cursor, end)
        except Undecryptable as error:
            return self._failed(error, cursor, begun=False)
        try:
            try:
                if batch or not cursor:
                    absorber._limited(self._block, head, work)
                # failed attempts of any process; after the cursor, a kill would leave them for ever
                absorber.failures.absorbed(self._name, cursor + 1, lease)
                after = self._advance(last)
                self._worked()
                self._head = after
                return None
            except (LeaseLost, ProcessEnds):
                raise
            except Exception as error:  # a block's failure must not lose a message
                wrote = True  # the block may have written a part
                message = self._failed(error, last, begun=begun)
                if not absorber._held(lease):
                    raise LeaseLost(_TAKEN_OVER) from error
                return message
        except LeaseLost:
            if wrote:  # if not, the block's own store refused the write
                absorber.undo_stale_writes(self._name, head, lease)
            return _TAKEN_OVER

    def _begin(self) -> None:
        # records of expired messages stay: they could not be derived again
        head, lease = self._head, self._lease
        resolve(self._block.delete(Scope(head.user_id, head.session_id, head.expired, lease)))
        for letter in self._absorber._dead_letters.dead(self._name, head.session_id):
            self._absorber._dead_letters.clear(self._name, letter.first, lease)

    def _worked(self) -> None:
        absorber, name = self._absorber, self._name
        self._parts.heartbeats.absorbed(name)
        absorber._backoff.succeeded(name, self._key)
        absorber.failures.resolve(*self._key)
        absorber._most_entries.drop(self._key)

    def _failed(self, error: Exception, last: int, *, begun: bool) -> str:
        """Record that a batch failed, and return the error as text.

        Only an error of the block itself counts as an attempt. A block that has not `begun` with
        the batch, or that lacks a key, a model or a store, waits.
        """
        absorber, name, key, refusal = self._absorber, self._name, self._key, self._account.refusal
        cause = refusal or error  # a call of unknown price is refused too
        message = error_text(cause)
        over = self._parts.services.spending.unaffordable
        if refusal is not None and over(self._head.user_id):
            # no failure: the block waits for the next day's budget
            absorber._backoff.pause(key, refusal.seconds)
            return message
        absorber.failures.record(name, message)
        if isinstance(error, Undecryptable):
            # nothing is stored: processes with the key refuse plain text
            absorber._backoff.failed(key)
            return message
        batch = name, self._cursor + 1, last, message, self._lease
        if is_temporary(cause) or not begun:
            absorber.failures.store_error(*batch)
            absorber._backoff.failed(name if is_temporary(cause) else key)
            return message
        absorber._backoff.failed(key)
        absorber._most_entries.put(key, max(1, (last - self._cursor) // 2))
        try:
            if absorber._dead_letters.count(*batch):
                self._advance(last)
                absorber._backoff.succeeded(key)
                absorber._most_entries.drop(key)
                absorber.failures.dismiss(name)
                logger.error(
                    "block %r gave up messages %d to %d of session %r; they are stored as a "
                    "dead letter: %s", name, self._cursor + 1, last, key[1], message,
                )  # fmt: skip
        except LeaseLost:
            raise
        except StoreError as failure:  # the attempt does not count, and the other blocks continue
            return error_text(failure)
        return message

    def _advance(self, last: int) -> Head:
        """Move the block's cursor and return the new head.

        Raise `LeaseLost` if another worker took the session over, or the session's user changed.
        """
        head: Head | None = self._head
        while True:
            if head is None or head.deleting or head.user_id != self._head.user_id:
                raise LeaseLost(_TAKEN_OVER)
            if head.cursors.get(self._name, 0) != self._cursor:
                raise LeaseLost(_TAKEN_OVER)
            moved = replace(head, cursors={**head.cursors, self._name: last})
            if after := self._store.move(moved, lease=self._lease):
                self._parts.windows.moved(head, after)
                return after
            head = self._store.head(self._head.session_id)


def without_system(entries: list[Entry]) -> list[Entry]:
    """Return the entries without system messages, which blocks and summaries ignore."""
    return [entry for entry in decrypted(entries) if not entry.message.is_system]
