"""The file of a SQLite database, and connections to the file.

A new file is readable only by its owner. All calls check that the file is still at its path.
"""

from __future__ import annotations

import logging
import math
import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from secrets import randbelow
from shutil import copyfileobj
from struct import unpack_from
from typing import Any, NamedTuple, TypeVar

from agent_memory.errors import StoreUnavailable
from agent_memory.stores.base import Durability
from agent_memory.stores.sql.database import SQLConnection
from agent_memory.stores.sql.sqlite_pages import LENGTH, page_size

T = TypeVar("T")

logger = logging.getLogger(__name__)

BUSY_SECONDS = 30.0
"""The seconds to wait for other connections."""

Identity = tuple[int, int]
"""The device and the inode of a file. They survive a move, and are unique among open files."""

_REOPEN = "Close this memory, and open it again."
_LOG_SECONDS = 0.001  # the least time between two checks of the log
MAGIC = b"SQLite format 3\x00"
_TURN = 2**32  # at this value, the change counter restarts from 0


class SQLiteFile:
    """A database's file, which must stay at its path while it is open.

    SQLite continues to use an open file that was moved, deleted or replaced. No other process
    would find the data that is then written to this file.

    Attributes:
        path: The absolute path, because the current folder may change.
        name: The name for errors, without the folder. Models may read errors.
        identity: The identity of the file when it was first opened.
        trouble: The reason why all calls fail; empty if there is none.
    """

    def __init__(self, path: str) -> None:
        folder = Path(path).parent
        if not folder.is_dir():
            raise StoreUnavailable(
                f"The folder {str(folder)!r} of the SQLite database does not exist. Create it."
            )
        if Path(path).is_dir():
            raise StoreUnavailable(f"{path!r} is a folder. Add a file name, such as memory.db.")
        self.path = os.path.abspath(path)
        self.name = os.path.basename(path)
        real = os.path.realpath(path)  # SQLite places its other files beside the target of a link
        self._log, self._shared = f"{real}-wal", f"{real}-shm"
        self._create(real)
        self.identity: Identity | None = None
        self._newest_log: Identity | None = None
        self._log_checked_at = -math.inf
        self.trouble = ""
        self._file_id = self._changes = 0
        self._compared: tuple[int, int] | None = None  # size and mtime at the last `compare`

    def opened(self, file_id: int) -> Identity | None:
        """Register a new connection and the database's id. Return the identity of the log."""
        # set here, because in a container the first opening may replace the file by a copy
        self.identity = self.identity or _identity(self.path)
        if self._compared is None and (status := _stat(self.path)) is not None:
            self._file_id, self._compared = file_id, (status.st_size, status.st_mtime_ns)
        self._newest_log = _identity(self._log)
        return self._newest_log

    def check(self, log: Identity | None) -> os.stat_result | None:
        """Check that the file, and the log that a connection opened, are still at their paths.

        Return the status of the file; None before it was opened. After a failure, all later checks
        fail too, because cached data may be from another file.
        """
        if self.identity is None:
            return None
        if not self.trouble:
            status = _stat(self.path)
            identity = _identity_in(status)
            if status is None or identity != self.identity:
                self.trouble = self._loss_text(identity)
            elif not status.st_size:
                self.trouble = self._written_over()
            elif log is None or self._is_log(log):
                return status
            else:
                self.trouble = self._loss_text(identity)
            logger.error(self.trouble)  # the service's log has no texts of errors
        raise StoreUnavailable(self.trouble)

    def is_written(self, status: os.stat_result) -> bool:
        """Return whether the file itself, not its log, was written since the last `compare`."""
        return self._compared not in (None, (status.st_size, status.st_mtime_ns))

    def compare(self, first: bytes) -> None:
        """Check that only SQLite wrote to the file. The caller holds the writer's lock."""
        status = _stat(self.path)
        if status is None or self._compared is None:
            return
        header = header_of(first)
        if header is None or self._is_harmed(header, status.st_size, self._compared[0]):
            self.trouble = self._written_over()
            logger.error(self.trouble)
            raise StoreUnavailable(self.trouble)
        self._changes, self._compared = header.changes, (status.st_size, status.st_mtime_ns)

    def _is_harmed(self, header: Header, size: int, before: int) -> bool:
        """Return whether another program wrote to the file.

        While a process copies the log to the file, the file may be shorter than its header says,
        but never shorter than before.
        """
        is_cut = size < before and size < header.size
        is_another = self._file_id != 0 and header.file_id not in (0, self._file_id)
        return is_cut or is_another or (header.changes - self._changes) % _TURN > _TURN // 2

    def _written_over(self) -> str:
        aside = self._set_aside()
        return (
            f"Another program overwrote or truncated the SQLite database {self.name!r} while it "
            f"was open.{aside} If needed, rename a backup to this name. {_REOPEN}"
        )

    def _set_aside(self) -> str:
        """Move the content of the log to another file, and return a sentence about that file.

        Without this, SQLite would copy the log over the file's new content when connections close.
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
        now = time.monotonic()
        if now - self._log_checked_at > _LOG_SECONDS:
            self._log_checked_at = now
            return log == _identity(self._log)
        return True

    def sync_log(self) -> None:
        try:
            log = os.open(self._log, os.O_RDWR)
        except FileNotFoundError:  # without shared memory there is no log: each commit is synced
            return
        try:
            os.fsync(log)
        except OSError as error:
            reason = f"The SQLite database {self.name!r} cannot be synced: {error.strerror}."
            raise StoreUnavailable(reason) from error
        finally:
            os.close(log)

    def _create(self, path: str) -> None:
        """Create a missing file, readable only by its owner, like the files that SQLite adds."""
        check_log(path)
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
            # the old log is moved, because SQLite would apply it when it opens the new file
            with suppress(OSError):
                os.replace(self._log, f"{self._log}.old")
                os.unlink(self._shared)
                aside = f" The last writes to the old file are in {self.name + '-wal.old'!r}."
        return (
            f"The SQLite database {self.name!r} was replaced by another file while it was open, "
            f"such as a restored backup.{aside} {_REOPEN}"
        )


def check_log(path: str) -> None:
    """Raise an error for a log without its file: SQLite would discard the log."""
    # the log is read first, because another process may be creating the file and then the log
    log, database, name = _stat(f"{path}-wal"), _stat(path), os.path.basename(path)
    if log is not None and log.st_size and (database is None or not database.st_size):
        raise StoreUnavailable(
            f"The SQLite database {name!r} is missing or empty, but its write-ahead log "
            f"{name + '-wal'!r} has the last writes. Put the database file back, or move "
            f"{name + '-wal'!r} away to begin a new database."
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
    """A database's id (`file_id`), change counter and size in bytes (0 if unknown)."""

    file_id: int
    changes: int
    size: int


def new_id() -> int:
    return 1 + randbelow(2**31 - 1)


def header_of(first: bytes) -> Header | None:
    if len(first) < LENGTH or not first.startswith(MAGIC):
        return None
    changes, pages = unpack_from(">II", first, 24)
    (file_id,) = unpack_from(">i", first, 68)
    (valid_for,) = unpack_from(">I", first, 92)
    return Header(file_id, changes, pages * page_size(first) if valid_for == changes else 0)


class Connection(SQLConnection):
    """One connection, for one thread at a time; see `SQLConnection`.

    `log` is the identity of the log that the connection opened. With `syncs`, commits wait for the
    disk.
    """

    dialect = "sqlite"

    def __init__(
        self, raw: sqlite3.Connection, log: Identity | None = None, *, syncs: bool = False
    ) -> None:
        self._raw = raw
        self.log = log
        self.close = raw.close
        self._can_relax = syncs and log is not None  # safe only with a write-ahead log
        self._is_relaxed = False

    @property
    def in_transaction(self) -> bool:
        return self._raw.in_transaction

    def relax(self, relaxed: bool) -> None:
        """With `relaxed`, commits do not wait for the disk. The next waiting commit syncs them."""
        if self._can_relax and relaxed != self._is_relaxed:
            self._is_relaxed = True  # if a signal interrupts the next line, FULL is set again later
            self._raw.execute(f"PRAGMA synchronous={'NORMAL' if relaxed else 'FULL'}")
            self._is_relaxed = relaxed

    def run(self, text: str, values: Sequence[Any] = ()) -> int:
        return self._raw.execute(text, values).rowcount

    def run_each(self, text: str, rows: Sequence[Sequence[Any]]) -> None:
        self._raw.executemany(text, rows)

    def rows(self, text: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        try:
            return self._raw.execute(text, values).fetchall()
        except sqlite3.OperationalError as error:
            if "Could not decode to UTF-8" not in str(error):
                raise
            return self._undecoded(text, values)

    def _undecoded(self, text: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Return the rows, with undecodable texts as bytes. All other values stay usable."""
        self._raw.text_factory = _text_or_bytes
        try:
            return self._raw.execute(text, values).fetchall()
        finally:
            self._raw.text_factory = str

    def has_table(self, name: str) -> bool:
        query = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
        return self._raw.execute(query, [name]).fetchone() is not None

    def transaction(self, work: Callable[[SQLConnection], T]) -> T:
        with self._raw:  # ends the transaction, even if a signal raises an exception
            self._raw.execute("BEGIN IMMEDIATE")
            return work(self)


def connect(path: str, durability: Durability | None) -> tuple[sqlite3.Connection, int]:
    """Return a connection and the database's id. An empty file becomes a new database."""
    connection = sqlite3.connect(
        path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
    )
    try:
        _set_id(connection)
        mode = _switch_to_wal(connection)
        # NORMAL is safe only in WAL mode; a file system without shared memory has no WAL.
        relaxed = durability == "process" and mode == "wal"
        connection.execute(f"PRAGMA synchronous={'NORMAL' if relaxed else 'FULL'}")
        connection.execute("PRAGMA secure_delete=ON")  # deleted data is zeroed in the file
        # this read also opens the log
        (file_id,) = connection.execute("PRAGMA application_id").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection, file_id


def _set_id(connection: sqlite3.Connection) -> None:
    if connection.execute("PRAGMA page_count").fetchone()[0]:
        return
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        # another process may have set the id first
        if not connection.execute("PRAGMA application_id").fetchone()[0]:
            connection.execute(f"PRAGMA application_id={new_id()}")


def _switch_to_wal(connection: sqlite3.Connection) -> str:
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            return str(connection.execute("PRAGMA journal_mode=WAL").fetchone()[0])
        except sqlite3.OperationalError as error:
            # SQLite does not wait for this lock, even with a busy timeout
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _text_or_bytes(raw: bytes) -> str | bytes:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw
