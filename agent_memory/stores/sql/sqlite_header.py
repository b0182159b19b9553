"""Detection of foreign writes to a database's file, from its size, time and first bytes."""

from __future__ import annotations

import os
from secrets import randbelow
from struct import unpack_from
from typing import NamedTuple

from agent_memory.stores.sql.sqlite_pages import page_size

LENGTH = 100
_MAGIC = b"SQLite format 3\x00"
_TURN = 2**32  # the counter restarts here


class Header(NamedTuple):
    """The header in a file's first bytes.

    Attributes:
        made_as: The id of the database; 0 if unknown.
        changes: A counter of some changes.
        size: The size in bytes; 0 if unknown.
    """

    made_as: int
    changes: int
    size: int


def new_id() -> int:
    """Return a new random database id."""
    return 1 + randbelow(2**31 - 1)


def header_of(first: bytes) -> Header | None:
    """Return the header in these bytes, or None."""
    if len(first) < LENGTH or not first.startswith(_MAGIC):
        return None
    changes, pages = unpack_from(">II", first, 24)
    (made_as,) = unpack_from(">i", first, 68)
    (valid_for,) = unpack_from(">I", first, 92)
    return Header(made_as, changes, pages * page_size(first) if valid_for == changes else 0)


class Watch:
    """The last observed state of an open file.

    Args:
        there: The file's status when it was opened.
        made_as: The id of the database; 0 for one without an id.
    """

    def __init__(self, there: os.stat_result, made_as: int) -> None:
        self._made_as, self._changes = made_as, 0
        self._size, self._time = there.st_size, there.st_mtime_ns

    def is_written(self, there: os.stat_result) -> bool:
        """Return whether the file was written since, usually by SQLite with the content of its
        log.
        """
        return (there.st_size, there.st_mtime_ns) != (self._size, self._time)

    def is_harmed(self, there: os.stat_result, first: bytes) -> bool:
        """Return whether another program wrote to the file, and store the new state if not.

        While another process copies the log, the file is shorter than its first page says. It
        never shrinks, however.
        """
        now = header_of(first)
        if (
            now is None
            or (there.st_size < self._size and there.st_size < now.size)
            or (self._made_as != 0 and now.made_as not in (0, self._made_as))
            or (now.changes - self._changes) % _TURN > _TURN // 2
        ):
            return True
        self._changes, self._size, self._time = now.changes, there.st_size, there.st_mtime_ns
        return False
