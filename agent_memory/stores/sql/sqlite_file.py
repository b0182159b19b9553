"""The file of a SQLite database: made for its owner alone, and still where it was opened."""

from __future__ import annotations

import math
import os
from contextlib import suppress
from pathlib import Path
from shutil import copyfileobj
from time import monotonic

from agent_memory.errors import StoreUnavailable
from agent_memory.stores.sql.sqlite_header import Watch

Identity = tuple[int, int]
"""Which file it is, wherever it is moved to; no other has the same while it is open."""

_ANEW = "Close this memory, and open it anew."
_LOG_SECONDS = 0.001  # who writes faster than that need not look each time, which takes as long


class SQLiteFile:
    """A database's file, which its path must lead to as long as it is open.

    SQLite goes on with the file that it has opened. Where that was moved, deleted or replaced
    nobody else would find what is written to it.

    Args:
        path: The file, made if it does not exist; its folder must exist.

    Attributes:
        path: From the root: the current folder may change.
        name: What errors call it; they may reach a model, which is to learn no folders.
        identity: Which file it was when it was first opened.

    Raises:
        StoreUnavailable: It does not exist, and can't be made.
    """

    def __init__(self, path: str) -> None:
        folder = Path(path).parent
        if not folder.is_dir():
            raise StoreUnavailable(
                f"The folder {str(folder)!r} of the SQLite database does not exist. Create it."
            )
        self.path = os.path.abspath(path)
        self.name = os.path.basename(path)
        real = os.path.realpath(path)  # SQLite puts the others beside what a link leads to
        self._log, self._shared = f"{real}-wal", f"{real}-shm"
        self._make(real)
        self.identity: Identity | None = None
        self._newest_log: Identity | None = None
        self._seen_log = -math.inf
        self._trouble = ""
        self._watch: Watch | None = None

    def opened(self, made_as: int) -> Identity | None:
        """Note what a connection has just opened; its write-ahead log is the answer.

        Args:
            made_as: Which database it says to be.
        """
        # not before: opening may make the file another one, where it is of a container's image
        self.identity = self.identity or _identity(self.path)
        if self._watch is None:
            there = _stat(self.path)
            self._watch = None if there is None else Watch(there, made_as)
        self._newest_log = _identity(self._log)
        return self._newest_log

    def check(self, log: Identity | None) -> os.stat_result | None:
        """See that the path leads to the file, and to the write-ahead log of a connection.

        Once it did not, it never does again: what was remembered may be of another file.

        Args:
            log: The connection's own; None where it has none.

        Returns:
            What the file is like; None before it was opened.

        Raises:
            StoreUnavailable: Something was moved, deleted or replaced.
        """
        if self.identity is None:
            return None
        if not self._trouble:
            there = _stat(self.path)
            found = _named(there)
            if there is None or found != self.identity:
                self._trouble = self._told(found)
            elif not there.st_size:
                self._trouble = self._written_over()
            elif log is None or self._is_log(log):
                return there
            else:
                self._trouble = self._told(found)
        raise StoreUnavailable(self._trouble)

    def is_written(self, there: os.stat_result) -> bool:
        """Whether somebody has written to the file, rather than to its log, since `compare`.

        Args:
            there: As `check` gave it.
        """
        return self._watch is not None and self._watch.is_written(there)

    def compare(self, first: bytes) -> None:
        """See that it was SQLite that wrote. To be called by who may write, after `is_written`.

        Args:
            first: The first bytes of the file.

        Raises:
            StoreUnavailable: It was cut short, or written over.
        """
        there = _stat(self.path)
        if there is not None and self._watch is not None and self._watch.is_harmed(there, first):
            self._trouble = self._written_over()
            raise StoreUnavailable(self._trouble)

    def _written_over(self) -> str:
        aside = self._set_aside()
        return (
            f"Another program wrote over the SQLite database {self.name!r} while it was open, or "
            f"cut it short.{aside} Put a backup back if need be, by renaming it. {_ANEW}"
        )

    def _set_aside(self) -> str:
        """Move what is in the log away, and say so: closing the connections would have it written
        over what the file is now."""
        try:
            with open(self._log, "rb") as log:
                mode = os.O_CREAT | os.O_TRUNC | os.O_WRONLY
                old = os.open(f"{self._log}.old", mode, 0o600)
                with open(old, "wb") as copy:
                    copyfileobj(log, copy)
            os.truncate(self._log, 0)
        except OSError:
            return ""
        return f" What was written last is in {self.name + '-wal.old'!r}."

    def _is_log(self, log: Identity) -> bool:
        now = monotonic()
        if now - self._seen_log > _LOG_SECONDS:
            self._seen_log = now
            return log == _identity(self._log)
        return True

    @property
    def is_lost(self) -> bool:
        """Whether a check has failed."""
        return bool(self._trouble)

    def _make(self, path: str) -> None:
        """Make the file, which nobody but its owner may read.

        One that is there stays as it is. SQLite gives all that it puts beside it the same mode.
        """
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except OSError as error:
            if not os.path.exists(path):
                told = f"The SQLite database {self.name!r} can't be made: {error.strerror}."
                raise StoreUnavailable(told) from error

    def _told(self, there: Identity | None) -> str:
        if there is None:
            return (
                f"The SQLite database {self.name!r} was moved or deleted while it was open: nobody "
                f"would find what is written to it. Put it back together with its "
                f"{self.name + '-wal'!r}. {_ANEW}"
            )
        if there == self.identity:
            return (
                f"{self.name + '-wal'!r}, the write-ahead log of the SQLite database "
                f"{self.name!r}, was moved or deleted while it was open: what was written last may "
                f"be missing. {_ANEW}"
            )
        aside = ""
        if self._newest_log is not None and self._newest_log == _identity(self._log):
            # whoever opens the new file would have it overwritten by what is in the log of the old
            with suppress(OSError):
                os.replace(self._log, f"{self._log}.old")
                os.unlink(self._shared)
                aside = f" What was written last to the former is in {self.name + '-wal.old'!r}."
        return (
            f"The SQLite database {self.name!r} was replaced by another file while it was open, "
            f"such as a backup that was put back.{aside} {_ANEW}"
        )


def _identity(path: str) -> Identity | None:
    return _named(_stat(path))


def _named(there: os.stat_result | None) -> Identity | None:
    return None if there is None else (there.st_dev, there.st_ino)


def _stat(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except OSError:
        return None
