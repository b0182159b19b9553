"""Failures of blocks, counted in the store, and dead letters."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from datetime import UTC, datetime
from time import monotonic

from agent_memory.core import threads
from agent_memory.core.cache import Cache
from agent_memory.core.records import DeadLetter, Lease, Record
from agent_memory.core.system_collections import FAILED
from agent_memory.engine.recall.runner import TimeLimited
from agent_memory.errors import (
    ConfigError,
    LeaseLost,
    ModelForbidden,
    ModelRequired,
    ModelUnavailable,
    SpendingLimitReached,
    StoreError,
)
from agent_memory.ltm_blocks.base import record_id
from agent_memory.stores.base import RecordStore

_PLACE = FAILED.name
_TEMPORARY = (
    SpendingLimitReached,
    ModelUnavailable,
    ModelForbidden,
    ModelRequired,
    ConfigError,
    StoreError,
    OSError,
)


def is_temporary(error: Exception) -> bool:
    """Return whether an error is temporary: a dependency or a setting causes it, not a message.

    Such an error may last for hours and never makes a dead letter. OSError covers refused
    connections and timeouts.
    """
    return isinstance(error, _TEMPORARY)


class DeadLetters:
    """Stores failed attempts to absorb batches. After `most` attempts, a batch is a dead letter."""

    def __init__(self, store: RecordStore, most: int) -> None:
        self._store = store
        self._most = most

    def count(
        self, block: str, first: int, last: int, error: str, lease: Lease, attempts: int = 1
    ) -> bool:
        """Store a failed attempt at a batch. Return whether the batch is now a dead letter.

        `attempts` is 0 for a temporary failure, which is not counted.
        """
        place = record_id(_PLACE, block, lease.session_id, first)
        before = next((row for row in self._store.records(_PLACE, block) if row.id == place), None)
        total = attempts + (before.metadata["attempts"] if before else 0)
        since = before.created_at if before else datetime.now(UTC)
        # a higher maximum does not revive dead letters: the cursor has passed them
        was_dead = before is not None and _is_dead_letter(before)
        is_dead = was_dead or (attempts > 0 and total >= self._most)
        letter = DeadLetter(block, lease.session_id, first, last, total, error, since)
        self.keep(letter, lease, is_dead=is_dead)
        return is_dead

    def keep(self, letter: DeadLetter, lease: Lease, *, is_dead: bool = True) -> None:
        """Store a dead letter, or the failures of a batch that is not given up."""
        place = record_id(_PLACE, letter.block, lease.session_id, letter.first)
        span = (letter.block, lease.session_id, letter.first, letter.last)
        metadata = {"attempts": letter.attempts, "given_up": is_dead}
        record = Record(place, *span, letter.error, (), letter.since, metadata)
        self._store.put_records(_PLACE, [record], lease=lease)

    def clear(self, block: str, first: int, lease: Lease) -> None:
        """Delete the failures of a batch that was absorbed."""
        place = record_id(_PLACE, block, lease.session_id, first)
        self._store.delete_records(_PLACE, record_id=place, lease=lease)

    def newest_error(self, block: str) -> str | None:
        """Return a block's newest error, from any process. None if no failed batch is pending."""
        pending = (each for each in self._store.records(_PLACE, block) if not _is_dead_letter(each))
        newest = max(pending, key=lambda record: record.created_at, default=None)
        return newest.text if newest is not None else None

    def clear_temporary(self, block: str) -> None:
        """Delete the temporary failures of a block that absorbed a batch."""
        for record in self._store.records(_PLACE, block):
            if not record.metadata["attempts"]:
                self._store.delete_records(_PLACE, record_id=record.id)

    def forget(self, session_id: str, after: int = 0, lease: Lease | None = None) -> None:
        """Delete the failures of a session's batches that end after the seq `after`."""
        self._store.delete_records(_PLACE, session_id=session_id, after=after, lease=lease)

    def dead(self, block: str, session_id: str | None = None) -> list[DeadLetter]:
        """Return a block's dead letters, oldest first."""
        return [
            DeadLetter(
                *(block, record.session_id, record.first, record.last),
                *(record.metadata["attempts"], record.text, record.created_at),
            )
            for record in self._store.records(_PLACE, block)
            if _is_dead_letter(record) and session_id in (None, record.session_id)
        ]


def _is_dead_letter(record: Record) -> bool:
    return bool(record.metadata["given_up"])


logger = logging.getLogger(__name__)

_CACHE_SECONDS = 10.0
_MOST_STORED = 10_000


class Failures:
    """The failures of blocks: failures in this process, and stored failures of all processes.

    Since the store itself may fail, no call waits for the store longer than `patience` seconds,
    except `of_blocks(now=True)`.
    """

    def __init__(self, dead_letters: DeadLetters, blocks: Collection[str], patience: float) -> None:
        self._dead_letters = dead_letters
        self._blocks = blocks
        self._patience = patience
        self._limited = TimeLimited()
        self._recorded: dict[str, str] = {}
        self._stored: dict[str, str] = {}
        self._read_at: float | None = None
        # the errors that this process has stored, by block and session
        self._stored_errors: Cache[tuple[str, str], str] = Cache(_MOST_STORED)

    def errors(self, *, now: bool = False) -> dict[str, str]:
        """Return each failing block's last error. Without `now`, the errors may be seconds old."""
        if now:
            self._read()
        elif self._read_at is None:
            self._read_at = monotonic()
            self._within(self._read)
        elif monotonic() - self._read_at >= _CACHE_SECONDS:
            self._read_at = monotonic()
            threads.Handover("failures", self._read)
        return {**self._stored, **self._recorded}

    def warnings(self, besides: Collection[str] = ()) -> list[str]:
        """Return a warning for each failing block, except the blocks in `besides`."""
        return [
            f"The block {name!r} could not absorb, and will try again: {error}"
            for name, error in self.errors().items()
            if name not in besides
        ]

    def record(self, block: str, message: str) -> None:
        """Record a block's failure in this process."""
        if self._recorded.get(block) != message:
            logger.warning("block %r could not absorb, and will try again: %s", block, message)
        self._recorded[block] = message

    def store_error(self, block: str, first: int, last: int, message: str, lease: Lease) -> None:
        """Store a temporary failure of a batch if it is new and the store works."""
        session = (block, lease.session_id)
        count = self._dead_letters.count
        if self._stored_errors.get(session) != message and self._within(
            lambda: count(block, first, last, message, lease, 0)
        ):
            self._stored_errors.put(session, message)

    def dismiss(self, block: str) -> None:
        """Remove a block's failure, because the batch is a dead letter now."""
        self._recorded.pop(block, None)

    def absorbed(self, block: str, first: int, lease: Lease) -> None:
        """Delete the stored failures of a batch that was absorbed, if the store works."""
        self._within(lambda: self._dead_letters.clear(block, first, lease))

    def resolve(self, block: str, session_id: str) -> None:
        """Remove a block's failure, because it absorbed a batch of the session."""
        self._recorded.pop(block, None)
        self._stored_errors.drop((block, session_id))
        if block in self.errors():
            self._within(lambda: self._dead_letters.clear_temporary(block))
            self._stored.pop(block, None)

    def _read(self) -> None:
        errors = {name: self._dead_letters.newest_error(name) for name in self._blocks}
        self._stored = {name: error for name, error in errors.items() if error is not None}

    def _within(self, call: Callable[[], object]) -> bool:
        """Run a call to the store. Return False if the store fails or takes too long."""
        try:
            self._limited.run("failures", call, self._patience, lambda: None)
        except LeaseLost:
            raise
        except (StoreError, TimeoutError):
            return False
        return True
