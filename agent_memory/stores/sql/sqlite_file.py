"""The file of a SQLite database: created for its owner alone, and checked to be still in place."""

from __future__ import annotations

import math
import os
from contextlib import suppress
from pathlib import Path
from secrets import randbelow
from shutil import copyfileobj
from struct import unpack_from
from time import monotonic
from typing import NamedTuple

from agent_memory.errors import StoreUnavailable
from agent_memory.stores.sql.sqlite_pages import LENGTH, page_size

Identity = tuple[int, int]
"""The identity of a file, which survives a move. No other open file has the same."""

_REOPEN = "Close this memory, and open it again."
_LOG_SECONDS = 0.001  # faster writers need not check each time, which takes as long
_MAGIC = b"SQLite format 3\x00"
_TURN = 2**32  # the counter restarts here


class SQLiteFile:
    """A database's file, which must stay at its path as long as it is open.

    SQLite continues with the file that it has opened. If that file was moved, deleted or replaced,
    no other process would find what is written to it.

    Attributes:
        path: The absolute path, because the current folder may change.
        name: The name in errors. A model may read them, and must not learn folders.
        identity: The identity of the file when it was first opened.

    Raises:
        StoreUnavailable: The file does not exist, and cannot be created.
    """

    def __init__(self, path: str) -> None:
        folder = Path(path).parent
        if not folder.is_dir():
            raise StoreUnavailable(
                f"The folder {str(folder)!r} of the SQLite database does not exist. Create it."
            )
        self.path = os.path.abspath(path)
        self.name = os.path.basename(path)
        real = os.path.realpath(path)  # SQLite places its other files beside the target of a link
        self._log, self._shared = f"{real}-wal", f"{real}-shm"
        self._create(real)
        self.identity: Identity | None = None
        self._newest_log: Identity | None = None
        self._seen_log = -math.inf
        self._trouble = ""
        self._watch: Watch | None = None

    def opened(self, made_as: int) -> Identity | None:
        """Register the file of a new connection with its database id. Return its log."""
        # Not before: on a container's image, opening may copy the file.
        self.identity = self.identity or _identity(self.path)
        if self._watch is None:
            status = _stat(self.path)
            self._watch = None if status is None else Watch(status, made_as)
        self._newest_log = _identity(self._log)
        return self._newest_log

    def check(self, log: Identity | None) -> os.stat_result | None:
        """Check that the path leads to the file, and to the write-ahead log of a connection.

        After one failure it always fails, because cached data may be of another file.

        Returns:
            The status of the file; None before it was opened.
        """
        if self.identity is None:
            return None
        if not self._trouble:
            status = _stat(self.path)
            identity = _identity_in(status)
            if status is None or identity != self.identity:
                self._trouble = self._loss_text(identity)
            elif not status.st_size:
                self._trouble = self._written_over()
            elif log is None or self._is_log(log):
                return status
            else:
                self._trouble = self._loss_text(identity)
        raise StoreUnavailable(self._trouble)

    def is_written(self, there: os.stat_result) -> bool:
        """Return whether the file itself, rather than its log, was written since `compare`."""
        return self._watch is not None and self._watch.is_written(there)

    def compare(self, first: bytes) -> None:
        """Check that only SQLite wrote to the file. The caller has the right to write."""
        status = _stat(self.path)
        if status is not None and self._watch is not None and self._watch.is_harmed(status, first):
            self._trouble = self._written_over()
            raise StoreUnavailable(self._trouble)

    def _written_over(self) -> str:
        aside = self._set_aside()
        return (
            f"Another program overwrote or truncated the SQLite database {self.name!r} while it "
            f"was open.{aside} Restore a backup if needed, by renaming it. {_REOPEN}"
        )

    def _set_aside(self) -> str:
        """Move the content of the log away, and return a sentence about it.

        To close the connections would otherwise write it over the new content of the file.
        """
        try:
            with open(self._log, "rb") as log:
                mode = os.O_CREAT | os.O_TRUNC | os.O_WRONLY
                old = os.open(f"{self._log}.old", mode, 0o600)
                with open(old, "wb") as copy:
                    copyfileobj(log, copy)
            os.truncate(self._log, 0)
        except OSError:
            return ""
        return f" The last writes are in {self.name + '-wal.old'!r}."

    def _is_log(self, log: Identity) -> bool:
        now = monotonic()
        if now - self._seen_log > _LOG_SECONDS:
            self._seen_log = now
            return log == _identity(self._log)
        return True

    def sync_log(self) -> None:
        """Sync the write-ahead log to disk. SQLite syncs it before it writes to the file."""
        try:
            log = os.open(self._log, os.O_RDWR)
        except FileNotFoundError:  # a file system without shared memory: each commit is synced
            return
        try:
            os.fsync(log)
        except OSError as error:
            reason = f"The SQLite database {self.name!r} cannot be synced: {error.strerror}."
            raise StoreUnavailable(reason) from error
        finally:
            os.close(log)

    @property
    def is_lost(self) -> bool:
        """Return whether a check has failed."""
        return bool(self._trouble)

    def _create(self, path: str) -> None:
        """Create the file, readable only by its owner.

        An existing file is not changed. SQLite creates its other files with the same mode.
        """
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except OSError as error:
            if not os.path.exists(path):
                reason = f"The SQLite database {self.name!r} cannot be created: {error.strerror}."
                raise StoreUnavailable(reason) from error

    def _loss_text(self, identity: Identity | None) -> str:
        if identity is None:
            return (
                f"The SQLite database {self.name!r} was moved or deleted while it was open: new "
                f"writes would be lost. Restore it together with its "
                f"{self.name + '-wal'!r}. {_REOPEN}"
            )
        if identity == self.identity:
            return (
                f"{self.name + '-wal'!r}, the write-ahead log of the SQLite database "
                f"{self.name!r}, was moved or deleted while it was open: the last writes may "
                f"be missing. {_REOPEN}"
            )
        aside = ""
        if self._newest_log is not None and self._newest_log == _identity(self._log):
            # Otherwise the old log would overwrite the new file at its next opening.
            with suppress(OSError):
                os.replace(self._log, f"{self._log}.old")
                os.unlink(self._shared)
                aside = f" The last writes to the old file are in {self.name + '-wal.old'!r}."
        return (
            f"The SQLite database {self.name!r} was replaced by another file while it was open, "
            f"such as a restored backup.{aside} {_REOPEN}"
        )


def _identity(path: str) -> Identity | None:
    return _identity_in(_stat(path))


def _identity_in(status: os.stat_result | None) -> Identity | None:
    return None if status is None else (status.st_dev, status.st_ino)


def _stat(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except OSError:
        return None


class Header(NamedTuple):
    """The header in a file's first bytes."""

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
    """The last observed state of an open file."""

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
