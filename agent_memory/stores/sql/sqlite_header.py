"""Whether somebody else than SQLite wrote to a database's file, as far as its size, its time and
its first bytes tell."""

from __future__ import annotations

import os
from secrets import randbelow
from struct import unpack_from
from typing import NamedTuple

from agent_memory.stores.sql.sqlite_pages import page_size

LENGTH = 100
_MAGIC = b"SQLite format 3\x00"
_TURN = 2**32  # the counter begins anew


class Header(NamedTuple):
    """What a file's first bytes say.

    Attributes:
        made_as: Which database it is; 0 where that is not known.
        changes: Counts some of its changes.
        size: Its bytes; 0 where that is not known.
    """

    made_as: int
    changes: int
    size: int


def new_id() -> int:
    """What tells a database from all others."""
    return 1 + randbelow(2**31 - 1)


def header_of(first: bytes) -> Header | None:
    """The header that these bytes are, if any."""
    if len(first) < LENGTH or not first.startswith(_MAGIC):
        return None
    changes, pages = unpack_from(">II", first, 24)
    (made_as,) = unpack_from(">i", first, 68)
    (valid_for,) = unpack_from(">I", first, 92)
    return Header(made_as, changes, pages * page_size(first) if valid_for == changes else 0)


class Watch:
    """What was last seen of a file that is open.

    Args:
        there: The file as it was opened.
        made_as: Which database it is; 0 for one that was made without saying.
    """

    def __init__(self, there: os.stat_result, made_as: int) -> None:
        self._made_as, self._changes = made_as, 0
        self._size, self._time = there.st_size, there.st_mtime_ns

    def is_written(self, there: os.stat_result) -> bool:
        """Whether somebody has written to the file since: as a rule SQLite, what is in its log."""
        return (there.st_size, there.st_mtime_ns) != (self._size, self._time)

    def is_harmed(self, there: os.stat_result, first: bytes) -> bool:
        """Whether it was not SQLite; what it was is remembered.

        While another process writes what is in the log the file is shorter than its first page
        says; but it does not become shorter.

        Args:
            there: The file as it is now.
            first: Its first bytes.
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
