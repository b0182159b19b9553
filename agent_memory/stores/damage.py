"""How whatever walks many records goes on past those that are damaged."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from agent_memory.errors import Damaged

if TYPE_CHECKING:
    from agent_memory.core.records import Entry, Head
    from agent_memory.stores.base import SessionStore

logger = logging.getLogger(__name__)

UNREADABLE_SECONDS = 600.0
"""For so long a session is put off whose head cannot be read."""

_MOST_TOLD = 10_000


class _End:
    """Comes after the last of what is walked."""


_END = _End()

Row = TypeVar("Row")
Value = TypeVar("Value")

_noting: ContextVar[list[Damaged] | None] = ContextVar("noting", default=None)
_told: set[str] = set()


@contextmanager
def noted() -> Iterator[list[Damaged]]:
    """What is left out within, for whoever wants to know; nothing is logged of it."""
    found: list[Damaged] = []
    token = _noting.set(found)
    try:
        yield found
    finally:
        _noting.reset(token)


def leave_out(error: Damaged) -> None:
    """Have it known, once, that something damaged is passed over."""
    noting = _noting.get()
    if noting is not None:
        noting.append(error)
        return
    text = str(error)
    if text not in _told:
        if len(_told) >= _MOST_TOLD:
            _told.clear()
        _told.add(text)
        logger.warning("passed over: %s", text)


def whole(values: Iterable[Value]) -> Iterator[Value]:
    """All that a walk gives, for whoever must not pass anything over.

    Raises:
        Damaged: Something is left out.
    """
    walk = iter(values)
    while True:
        with noted() as damaged:
            found = next(walk, _END)
        if damaged:
            raise damaged[0]
        if isinstance(found, _End):
            return
        yield found


def undamaged(rows: Iterable[Row], decode: Callable[[Row], Value]) -> list[Value]:
    """What rows hold, without those that are damaged."""
    found: list[Value] = []
    for row in rows:
        try:
            found.append(decode(row))
        except Damaged as error:
            leave_out(error)
    return found


def head_or_rest(store: SessionStore, session_id: str) -> Head | None:
    """A head to delete a session by: what can be read of it, where it is damaged.

    One that can't be marked any more counts as marked.
    """
    try:
        return store.head(session_id)
    except Damaged as error:
        if error.damage is None or error.damage.head is None:
            raise
        head = error.damage.head
        return head if error.damage.is_known else replace(head, deleting=True)


def page_of(
    read: Callable[[str, int], list[Row]],
    decode: Callable[[Row], Head],
    name: Callable[[Row], str],
    after: str,
    limit: int,
) -> list[Head]:
    """A page of heads, as long as it was asked for, whatever is left out of it.

    Args:
        read: Gives rows after an id, so many at most.
        decode: Makes a head of one.
        name: The session's id in one.
        after: The id.
        limit: How many.
    """
    heads: list[Head] = []
    while (wanted := limit - len(heads)) > 0:
        rows = read(after, wanted)
        heads += undamaged(rows, decode)
        if len(rows) < wanted:
            break
        after = name(rows[-1])
    return heads


def due_of(store: SessionStore, read: Callable[[], list[Head]]) -> list[Head]:
    """The heads that are due; those that are damaged are put off, so that they keep no place."""
    while True:
        with noted() as damaged:
            heads = read()
        put_off = False
        for error in damaged:
            leave_out(error)
            if error.damage is not None and error.damage.head is not None:
                put_off |= store.schedule(error.damage.head, UNREADABLE_SECONDS)
        if heads or not put_off:
            return heads


def read_around(
    store: SessionStore, session_id: str, after: int, limit: int | None = None
) -> tuple[list[Entry], int]:
    """Entries as `SessionStore.read` gives them, without those that are damaged.

    Returns:
        The entries, and the seq up to which the log was read.

    Raises:
        Undecryptable: One cannot be opened, and perhaps for want of its key, which may be given
            later: it is not passed over.
    """
    found: list[Entry] = []
    end = None if limit is None else after + limit
    while end is None or after < end:
        try:
            read = store.read(session_id, after=after, limit=None if end is None else end - after)
            return found + read, read[-1].seq if read else after
        except Damaged as error:
            seq = error.damage.seq if error.damage else 0
            if seq <= after:  # it says nothing of where
                raise
            if seq > after + 1:
                found += store.read(session_id, after=after, limit=seq - 1 - after)
            leave_out(error)
            after = seq
    return found, after
