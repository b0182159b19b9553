"""What blocks could not absorb: attempts are counted in the store, for all workers together."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from agent_memory.core.records import DeadLetter, Lease, Record
from agent_memory.core.reserved import FAILED
from agent_memory.errors import (
    ConfigError,
    ModelForbidden,
    ModelRequired,
    ModelUnavailable,
    SpendingLimitReached,
    StoreError,
)
from agent_memory.ltm_blocks.base import record_id
from agent_memory.stores.base import RecordStore

_PLACE = FAILED.name
_PASSING = (
    SpendingLimitReached,
    ModelUnavailable,
    ModelForbidden,
    ModelRequired,
    ConfigError,
    StoreError,
    OSError,
)


def is_passing(error: Exception) -> bool:
    """Whether a dependency or a setting is at fault, and not the messages.

    Such a failure may last for hours and end; it never makes a dead letter. OSError takes in
    refused connections and timeouts.
    """
    return isinstance(error, _PASSING)


class DeadLetters:
    """Attempts at batches that failed, and batches that were given up.

    Args:
        store: Where they are kept.
        most: Attempts after which a batch is given up.
    """

    def __init__(self, store: RecordStore, most: int) -> None:
        self._store = store
        self._most = most

    def count(self, block: str, first: int, last: int, error: str, lease: Lease) -> bool:
        """One more attempt at a batch failed; whether the batch is given up now."""
        return self._noted(block, first, last, error, lease, 1)

    def note(self, block: str, first: int, last: int, error: str, lease: Lease) -> None:
        """A batch waits for what fails around it, which is no attempt: see `is_passing`."""
        self._noted(block, first, last, error, lease, 0)

    def _noted(
        self, block: str, first: int, last: int, error: str, lease: Lease, more: int
    ) -> bool:
        place = record_id(_PLACE, block, lease.session_id, first)
        before = next((one for one in self._store.records(_PLACE, block) if one.id == place), None)
        record = before or Record(
            id=place,
            owner=block,
            session_id=lease.session_id,
            first=first,
            last=last,
            text=error,
            sources=(),
            created_at=datetime.now(UTC),
            metadata={"attempts": 0},
        )
        attempts = record.metadata["attempts"] + more
        # what was given up stays so, whatever is configured now: its cursor has passed
        is_last = more > 0 and attempts >= self._most
        given_up: bool = record.metadata.get("given_up", False) or is_last
        metadata = {"attempts": attempts, "given_up": given_up}
        record = replace(record, last=last, text=error, metadata=metadata)
        self._store.put_records(_PLACE, [record], lease=lease)
        return given_up

    def keep(self, letter: DeadLetter, lease: Lease) -> None:
        """A batch was given up elsewhere."""
        place = record_id(_PLACE, letter.block, lease.session_id, letter.first)
        span = (letter.block, lease.session_id, letter.first, letter.last)
        metadata = {"attempts": letter.attempts, "given_up": True}
        record = Record(place, *span, letter.error, (), letter.since, metadata)
        self._store.put_records(_PLACE, [record], lease=lease)

    def clear(self, block: str, first: int, lease: Lease) -> None:
        """The batch was absorbed after all."""
        place = record_id(_PLACE, block, lease.session_id, first)
        self._store.delete_records(_PLACE, record_id=place, lease=lease)

    def failing(self, block: str) -> str | None:
        """Why a block could not absorb something that it will try again; None where nothing waits.

        Of several reasons the newest, whichever process met it.
        """
        waiting = (one for one in self._store.records(_PLACE, block) if not _is_given_up(one))
        newest = max(waiting, key=lambda one: one.created_at, default=None)
        return newest.text if newest is not None else None

    def works(self, block: str) -> None:
        """A block absorbed something: no batch waits any more for what had failed around it."""
        for record in self._store.records(_PLACE, block):
            if not record.metadata["attempts"]:
                self._store.delete_records(_PLACE, record_id=record.id)

    def forget(self, session_id: str, after: int = 0, lease: Lease | None = None) -> None:
        """Forget a session's failures: all, or those that reach past a seq."""
        self._store.delete_records(_PLACE, session_id=session_id, after=after, lease=lease)

    def dead(self, block: str, session_id: str | None = None) -> list[DeadLetter]:
        """The batches that a block gave up, oldest first."""
        return [
            DeadLetter(
                block=block,
                session_id=record.session_id,
                first=record.first,
                last=record.last,
                attempts=record.metadata["attempts"],
                error=record.text,
                since=record.created_at,
            )
            for record in self._store.records(_PLACE, block)
            if _is_given_up(record) and session_id in (None, record.session_id)
        ]


def _is_given_up(record: Record) -> bool:
    given_up: bool = record.metadata["given_up"]
    return given_up
