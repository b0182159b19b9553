"""SQLite as the stores use it: short reads, and writes one at a time, each in a transaction.

All that only SQLite needs (WAL, BEGIN IMMEDIATE, one writer at a time) is here. Statements go to
the standard library's driver as text; SQLAlchemy is not imported.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from agent_memory.errors import StoreError, StoreUnavailable
from agent_memory.stores.base import Durability
from agent_memory.stores.sql.database import SQLConnection
from agent_memory.stores.sql.sqlite_connection import Connection

T = TypeVar("T")

_BUSY_SECONDS = 30.0
_SCRUB_SECONDS = 5.0
_REWRITE_BYTES = 2**30  # more would keep other processes waiting for about their _BUSY_SECONDS
_MOST_READERS = 32
_MOST_IDLE = 8

logger = logging.getLogger(__name__)

_locks: weakref.WeakValueDictionary[str, _WriterLock] = weakref.WeakValueDictionary()
_databases: weakref.WeakSet[Database] = weakref.WeakSet()


class _WriterLock:
    """Lets one thread of this process write a file; the others need not poll SQLite for it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.rewrites = 0


class _Gate:
    """Lets calls to databases through, except while the process forks."""

    def __init__(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._inside = 0
        self._forking = False

    def __enter__(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._forking)
            self._inside += 1

    def __exit__(self, *exc: object) -> None:
        with self._changed:
            self._inside -= 1
            if self._forking:
                self._changed.notify_all()

    def shut(self) -> None:
        """Wait until nobody is inside, and let nobody in."""
        self._changed.acquire()
        self._forking = True
        self._changed.wait_for(lambda: not self._inside)

    def open(self) -> None:
        """Let all in again."""
        self._forking = False
        self._changed.notify_all()
        self._changed.release()


_gate = _Gate()


class Database:
    """A SQLite file.

    Args:
        path: The file, created if it does not exist; its folder must exist.
        durability: What a committed transaction survives.

    Raises:
        StoreUnavailable: The folder does not exist.
    """

    def __init__(self, path: str, durability: Durability = "process") -> None:
        folder = Path(path).parent
        if not folder.is_dir():
            raise StoreUnavailable(
                f"The folder {str(folder)!r} of the SQLite database does not exist. Create it."
            )
        self._path = path
        self._durability: Durability = durability
        self._closed = False
        self._writer = _locks.setdefault(os.path.realpath(path), _WriterLock())
        self._writing: Connection | None = None
        self._begin_anew()
        _databases.add(self)

    def _begin_anew(self) -> None:
        self._idle: list[Connection] = []
        self._readers = threading.Semaphore(_MOST_READERS)

    def read(self, work: Callable[[Connection], T]) -> T:
        """Run `work` outside of a transaction: each of its statements sees one state.

        Raises:
            StoreUnavailable: The database cannot be used now.
        """
        try:
            with self._readers, _gate:
                connection = self._taken()
                try:
                    return work(connection)
                finally:
                    self._give(connection)
        except sqlite3.Error as error:
            raise self._failure(error) from error

    def alone(self, work: Callable[[Connection], T]) -> T:
        """Run `work` while no other thread of this process writes.

        Each of its statements is a transaction of its own.

        Raises:
            StoreUnavailable: The database cannot be used now.
        """
        try:
            with self._writer.lock:
                connection = self._writing = self._writing or self._connected()
                try:
                    return work(connection)
                finally:
                    if self._closed or connection.in_transaction:
                        self._stop_writing()
        except sqlite3.Error as error:
            raise self._failure(error) from error

    def write(self, work: Callable[[SQLConnection], T]) -> T:
        """Run `work` in one transaction.

        Raises:
            StoreUnavailable: The database cannot be used now.
        """
        return self.alone(lambda connection: connection.transaction(work))

    def patiently(self, work: Callable[[SQLConnection], None]) -> None:
        """Run `work` in one transaction; all wait for their turn to write here, and then take it.

        Raises:
            StoreUnavailable: The database cannot be used now.
        """
        self.write(work)

    def secure_erase(self) -> None:
        """Write the file anew and empty its write-ahead log: neither tells what was deleted.

        SQLite zeroes what is deleted where it stands. But where pages were split or merged, copies
        of the rows that moved stay in the gaps of the pages they left, and outlive these rows. So
        the file is rewritten, which takes about a second for 100 MB and keeps writers waiting.

        What does not work now (another process reads an old state, the disk is full) works with the
        next call; a warning says so.
        """
        size = self.read(_size)
        if size > _REWRITE_BYTES:
            logger.warning(
                "the database %r is too large (%d MB) to be rewritten while it is in use: copies "
                "of what was deleted may stand in the gaps of its pages. Run VACUUM on it in a "
                "quiet hour.", self._path, size >> 20,
            )  # fmt: skip
        else:
            self._rewrite()
        deadline = time.monotonic() + _SCRUB_SECONDS
        while not self.alone(_empty_log):
            if time.monotonic() > deadline:
                logger.warning(
                    "the write-ahead log of %r is held open by a reader: what was deleted may "
                    "stand in it until the next deletion, or until all have closed the database",
                    self._path,
                )
                return
            time.sleep(0.02)

    def _rewrite(self) -> None:
        writer, seen = self._writer, self._writer.rewrites

        def vacuum(connection: Connection) -> None:
            if writer.rewrites == seen:  # else another thread rewrote what this one waited to
                connection.value("VACUUM")
                writer.rewrites += 1

        try:
            self.alone(vacuum)
        except StoreUnavailable as error:
            logger.warning(
                "%s It could not be rewritten: copies of what was deleted may stand in the gaps of "
                "its pages until the next deletion.", error,
            )  # fmt: skip

    def close(self) -> None:
        """Wait for what is being written, and close the connections. Idempotent."""
        self._closed = True
        self.drop_idle()
        with self._writer.lock:
            self._stop_writing()

    def _taken(self) -> Connection:
        try:
            return self._idle.pop()
        except IndexError:
            return self._connected()

    def _give(self, connection: Connection) -> None:
        if len(self._idle) < _MOST_IDLE:
            self._idle.append(connection)
        else:
            connection.close()
        if self._closed:  # closed meanwhile: what was just given back would stay open
            self.drop_idle()

    def _connected(self) -> Connection:
        if self._closed:
            raise StoreUnavailable("The store was closed. Open a new one.")
        return Connection(_connect(self._path, self._durability))

    def _stop_writing(self) -> None:
        if self._writing is not None:
            self._writing.close()
            self._writing = None

    def _failure(self, error: sqlite3.Error) -> StoreError:
        text = f"The SQLite database {self._path!r} failed: {error}."
        if isinstance(error, sqlite3.OperationalError):
            return StoreUnavailable(text)
        return StoreError(text)

    def begin_anew(self) -> None:
        """In a forked child: leave the parent's connections alone and begin with none."""
        self._writing = None
        self._begin_anew()

    def drop_idle(self) -> None:
        """Close the connections that nobody reads with."""
        while True:
            try:
                self._idle.pop().close()
            except IndexError:
                return

    def prepare_fork(self) -> None:
        """Close the connections, while nobody uses any.

        The child would believe that it holds the locks of those that crossed the fork.
        """
        self.drop_idle()
        self._stop_writing()


def _size(connection: Connection) -> int:
    return int(connection.value("PRAGMA page_count")) * int(connection.value("PRAGMA page_size"))


def _empty_log(connection: Connection) -> bool:
    connection.value("PRAGMA busy_timeout=0")  # it would keep all writers out meanwhile
    try:
        busy = connection.value("PRAGMA wal_checkpoint(TRUNCATE)")
    finally:
        connection.value(f"PRAGMA busy_timeout={_BUSY_SECONDS * 1000:.0f}")
    return not busy


def _connect(path: str, durability: Durability) -> sqlite3.Connection:
    connection = sqlite3.connect(
        path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
    )
    try:
        mode = _switch_to_wal(connection)
        # NORMAL is safe in WAL mode only; a file system without shared memory has no WAL
        relaxed = durability == "process" and mode == "wal"
        connection.execute(f"PRAGMA synchronous={'NORMAL' if relaxed else 'FULL'}")
        connection.execute("PRAGMA secure_delete=ON")  # what is deleted is zeroed in the file
    except BaseException:
        connection.close()
        raise
    return connection


def _switch_to_wal(connection: sqlite3.Connection) -> str:
    deadline = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            return str(connection.execute("PRAGMA journal_mode=WAL").fetchone()[0])
        except sqlite3.OperationalError as error:
            # SQLite does not wait for the lock here, whatever the busy timeout
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _before_fork() -> None:
    for _, writer in sorted(_locks.items()):
        writer.lock.acquire()
        _held.append(writer)
    _gate.shut()
    for database in list(_databases):
        database.prepare_fork()


def _after_fork() -> None:
    _gate.open()
    while _held:
        _held.pop().lock.release()


def _after_fork_in_child() -> None:
    for database in list(_databases):
        database.begin_anew()
    _after_fork()


_held: list[_WriterLock] = []

if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=_after_fork,
        after_in_child=_after_fork_in_child,
    )
