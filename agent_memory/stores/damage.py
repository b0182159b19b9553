"""Functions that read many records. They leave out damaged records, and report them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from agent_memory.core.cache import Cache
from agent_memory.errors import Damaged, StoreError

if TYPE_CHECKING:
    from agent_memory.core.records import Entry, Head
    from agent_memory.stores.base import SessionStore

logger = logging.getLogger(__name__)

UNREADABLE_SECONDS = 600.0
"""The seconds for which a session with an unreadable head is postponed."""

_MOST_REPORTED = 10_000

Row = TypeVar("Row")
Value = TypeVar("Value")

_collector: ContextVar[list[Damaged] | None] = ContextVar("noting", default=None)
_reported: Cache[str, bool] = Cache(_MOST_REPORTED)


@contextmanager
def noted() -> Iterator[list[Damaged]]:
    """Collect errors of records that are left out in the `with` block, instead of logging them."""
    collected: list[Damaged] = []
    token = _collector.set(collected)
    try:
        yield collected
    finally:
        _collector.reset(token)


def leave_out(error: StoreError) -> None:
    """Report a record that is left out. Without `noted`, each error is logged once."""
    collected = _collector.get()
    if collected is not None and isinstance(error, Damaged):
        collected.append(error)
        return
    text = str(error)
    if text not in _reported:
        _reported.put(text, True)
        logger.warning("left out: %s", text)


def undamaged(rows: Iterable[Row], decode: Callable[[Row], Value]) -> list[Value]:
    """Decode rows, and leave out the damaged ones."""
    values: list[Value] = []
    for row in rows:
        try:
            values.append(decode(row))
        except Damaged as error:
            leave_out(error)
    return values


def undamaged_records(rows: Iterable[Row], decode: Callable[[Row], Value]) -> list[Value]:
    """Decode records, and leave out the damaged ones.

    Raises:
        Damaged: An error names no record. Its cause may be a wrong key, which concerns all rows.
    """
    with noted() as damaged:
        values = undamaged(rows, decode)
    for error in damaged:
        if error.damage is None:
            raise error
        leave_out(error)
    return values


def head_or_rest(store: SessionStore, session_id: str) -> Head | None:
    """Return the head of a session to delete, or the readable part of a damaged head.

    If an irreplaceable field of the head is unreadable, such as the user, `deleting` is set.
    """
    try:
        return store.head(session_id)
    except Damaged as error:
        if error.damage is None or error.damage.head is None:
            raise
        head = error.damage.head
        return head if error.damage.is_usable else replace(head, deleting=True)


def read_around(
    store: SessionStore, session_id: str, after: int, limit: int | None = None
) -> tuple[list[Entry], int]:
    """Read entries like `SessionStore.read`, and leave out the damaged ones.

    Returns:
        The entries, and the seq up to which the log was read.

    Raises:
        Undecryptable: The key of an entry is missing, or may be wrong. The entry is not left out,
            because the key may be added later.
    """
    entries: list[Entry] = []
    end = None if limit is None else after + limit
    while end is None or after < end:
        try:
            read = store.read(session_id, after=after, limit=None if end is None else end - after)
            return entries + read, read[-1].seq if read else after
        except Damaged as error:
            seq = error.damage.seq if error.damage else 0
            if seq <= after:  # the place of the damage is unknown
                raise
            if seq > after + 1:
                entries += store.read(session_id, after=after, limit=seq - 1 - after)
            leave_out(error)
            after = seq
    return entries, after
