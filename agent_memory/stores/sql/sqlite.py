"""A SQLite database for `SQLKernel`: concurrent reads, and one write at a time."""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import TypeVar

from agent_memory.core.processes import checked_lock, is_own
from agent_memory.errors import Damaged, StoreError, StoreUnavailable
from agent_memory.stores.base import Durability
from agent_memory.stores.kernel.rules import WITHIN_HANDLER
from agent_memory.stores.sql.database import Places, SQLDatabase
from agent_memory.stores.sql.migrations import is_current
from agent_memory.stores.sql.sqlite_file import (
    BUSY_SECONDS,
    Connection,
    Identity,
    SQLiteFile,
    connect,
)
from agent_memory.stores.sql.sqlite_pages import NoTree, RawFile

T = TypeVar("T")

_MALFORMED = "disk image is malformed"
_SCRUB_SECONDS = 5.0
_PAGES_PER_STEP = 500  # writers wait while this many pages are cleared
_MOST_READERS = 32
_MOST_IDLE = 8
_HELD = "A reader holds the write-ahead log open. A worker, `flush` or the next deletion retries."
_ROOTS = "SELECT rootpage FROM sqlite_master WHERE rootpage > 0"

logger = logging.getLogger(__name__)

_locks: weakref.WeakValueDictionary[str, _WriterLock] = weakref.WeakValueDictionary()
_databases: weakref.WeakSet[Database] = weakref.WeakSet()


class _WriterLock:
    """A lock for a file's writers in this process. Otherwise they would poll SQLite's lock."""

    def __init__(self) -> None:
        self.lock = checked_lock()
        self.raw: RawFile | None = None


_init_lock = threading.RLock()
"""Held while a `Database` is initialised. A fork waits for it."""


class Database(SQLDatabase):
    """A SQLite file, created if it does not exist; see `SQLDatabase`."""

    def __init__(self, path: str, durability: Durability | None = None) -> None:
        self._durability: Durability | None = durability
        self._closed = False
        self._writing: Connection | None = None
        self._places: Places[Connection] = Places(_MOST_READERS, _MOST_IDLE)
        with _init_lock:
            self._writer = _locks.setdefault(os.path.realpath(path), _WriterLock())
            with self._writer.lock:  # `SQLiteFile` closes a descriptor, which drops SQLite's locks
                self._file = SQLiteFile(path)
            _databases.add(self)

    def read(self, work: Callable[[Connection], T]) -> T:
        try:
            place = self._places.any()
            with place.lock:
                connection = place.connection = place.connection or self._connected()
                try:
                    return self._checked(work, connection)
                finally:
                    if self._closed or self._file.trouble or not place.keeps:
                        place.clear()
        except sqlite3.Error as error:
            raise self._failure(error) from error

    def alone(
        self, work: Callable[[Connection], T], *, synced: bool = True, within: bool = False
    ) -> T:
        """Run `work` while no other thread of this process writes.

        With `within`, this thread holds the writer's lock already.
        """
        if not within and is_own(self._writer.lock):
            raise StoreUnavailable(WITHIN_HANDLER)
        try:
            with self._writer.lock:
                connection = self._writing
                if connection is None or connection.in_transaction:
                    self._stop_writing()  # a signal has interrupted the transaction
                    self._compare(None)
                    connection = self._writing = self._connected()
                try:
                    connection.relax(not synced)
                    result = work(connection)
                    self._compare(connection.log)
                    return result
                except sqlite3.Error:
                    self._compare(connection.log)  # raises another error if the file is the cause
                    raise
                finally:
                    if self._closed or self._file.trouble or connection.in_transaction:
                        self._stop_writing()
                        if self._file.trouble:
                            self._places.clear()
        except sqlite3.Error as error:
            raise self._failure(error) from error

    def secure_erase(self) -> str | None:
        """Erase deleted data from the write-ahead log and from the gaps of pages.

        `sqlite_pages` explains the gaps. Writers continue during the search for data in gaps, and
        wait briefly while a group of pages is cleared. If a step fails (another process reads an
        old state, the disk is full), a warning is logged, and the reason is returned. The next call
        tries again.
        """
        deadline = time.monotonic() + _SCRUB_SECONDS
        if is_own(self._writer.lock):
            raise StoreUnavailable(WITHIN_HANDLER)
        if not self._until(deadline, lambda: self.read(_write_back)):
            return _HELD
        pending = None
        try:
            suspects = list(self._raw().untidy())
            # `_tidy` runs at least once. If a process was killed after it cleared pages, other
            # connections may still cache the old content.
            for start in range(0, max(len(suspects), 1), _PAGES_PER_STEP):
                group = suspects[start : start + _PAGES_PER_STEP]
                if not self._until(deadline, partial(self._tidy, group)):
                    return _HELD
        except (StoreUnavailable, OSError) as error:
            logger.warning(
                "%s Copies of data deleted from %r could not be overwritten: they may remain in "
                "the gaps of its pages until a worker, `flush` or a deletion retries.",
                error, self._file.path,
            )  # fmt: skip
            pending = "Copies in gaps of pages could not be overwritten. It will be tried again."
        self.read(_write_back)  # while writers continue, so that `_empty_log` takes less time
        return pending if self._until(deadline, lambda: self.alone(_empty_log)) else _HELD

    def _until(self, deadline: float, step: Callable[[], bool]) -> bool:
        while not step():
            if time.monotonic() > deadline:
                logger.warning(
                    "the write-ahead log of %r is held open by a reader: deleted data may "
                    "remain in it until a worker, `flush` or the next deletion retries",
                    self._file.path,
                )
                return False
            time.sleep(0.02)
        return True

    def _tidy(self, suspects: Sequence[int]) -> bool:
        """Clear the gaps of pages. Return False if a reader still uses an old state.

        No other connection writes to the file meanwhile: the transaction excludes writes to the
        log, and the whole log has been copied to the file.
        """

        def work(connection: Connection) -> bool:
            if not self.read(_write_back):
                return False
            self._file.check(connection.log)
            try:
                self._raw().tidy([root for (root,) in connection.rows(_ROOTS)], suspects)
            except NoTree as error:
                raise sqlite3.DatabaseError(_MALFORMED) from error
            # This write makes all other connections drop their cached pages.
            connection.value(f"PRAGMA user_version={connection.value('PRAGMA user_version')}")
            return True

        with self._writer.lock:
            self._stop_writing()  # a connection does not drop its cached pages after its own write
            return self.alone(
                lambda connection: connection.transaction(lambda _: work(connection)), within=True
            )

    def _compare(self, log: Identity | None) -> None:
        """Check that the file is at its path, and that only SQLite wrote to it.

        The caller holds the writer's lock.
        """
        status = self._file.check(log)
        if status is not None and self._file.is_written(status):
            self._file.compare(self._raw().first())

    def _raw(self) -> RawFile:
        with self._writer.lock:
            raw = self._writer.raw
            if raw is None or raw.identity != self._file.identity:
                raw = RawFile(self._file.path)
            if raw.identity != self._file.identity:
                raise StoreUnavailable("The SQLite database was replaced while it was open.")
            self._writer.raw = raw
            return raw

    def sync(self) -> None:
        if self._durability == "process":
            self._file.sync_log()

    def close(self) -> None:
        self._closed = True
        self._places.clear()
        with self._writer.lock:
            if self._writing is not None:
                with suppress(StoreUnavailable):  # the check moves the log of a replaced file away
                    self._file.check(self._writing.log)
            self._stop_writing()
        with _init_lock, self._writer.lock:
            if all(database._closed for database in _databases if database._writer is self._writer):
                self._writer.raw = None

    def _checked(self, work: Callable[[Connection], T], connection: Connection) -> T:
        try:
            result = work(connection)
        except sqlite3.Error:
            self._file.check(connection.log)  # raises another error if the file is the cause
            raise
        self._file.check(connection.log)
        return result

    def _connected(self) -> Connection:
        if self._closed:
            raise StoreUnavailable("The store was closed. Open a new one.")
        self._file.check(None)
        others = self._open()
        raw, file_id = connect(self._file.path, self._durability)
        syncs = self._durability != "process"
        connection = Connection(raw, self._file.opened(file_id), syncs=syncs)
        try:
            for other in set(others).intersection(self._open()):
                self._file.check(other.log)  # a connection that stayed open shares the log
        except BaseException:
            connection.close()
            raise
        return connection

    def _open(self) -> list[Connection]:
        connections = [place.connection for place in self._places]
        return [each for each in [*connections, self._writing] if each is not None]

    def _stop_writing(self) -> None:
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.close()

    def _failure(self, error: sqlite3.Error) -> StoreError:
        text = f"The SQLite database {self._file.name!r} failed: {error}."
        if "no such table" in str(error):
            self.read(is_current)  # raises an error for a newer release
        if "readonly database" in str(error) or "unable to open database file" in str(error):
            text += " Allow this process to write to the file and its folder."
        if "is locked" in str(error):
            text += " Another program writes to the file. End its transaction, and try again."
        if "disk is full" in str(error):
            text += " Free space on the disk."
        if isinstance(error, sqlite3.OperationalError):
            return StoreUnavailable(text)
        if _MALFORMED in str(error):  # other pages of the file may be intact
            return Damaged(f"{text} Run `agent-memory doctor`, or restore a backup.")
        return StoreError(text)

    def prepare_fork(self) -> None:
        """Close all connections, while none is in use.

        A forked child would otherwise believe that it holds the locks of inherited connections.
        """
        for place in self._places:
            place.clear()
        self._stop_writing()


def _write_back(connection: Connection) -> bool:
    """Copy the log to the file without blocking writers. Return whether the copy is complete."""
    ((busy, logged, written),) = connection.rows("PRAGMA wal_checkpoint(PASSIVE)")
    return not busy and logged == written


def _empty_log(connection: Connection) -> bool:
    connection.value("PRAGMA busy_timeout=0")  # the wait would block all writers
    try:
        busy = connection.value("PRAGMA wal_checkpoint(TRUNCATE)")
    finally:
        connection.value(f"PRAGMA busy_timeout={BUSY_SECONDS * 1000:.0f}")
    return not busy


def _before_fork() -> None:
    _held.enter_context(_init_lock)
    for _, writer in sorted(_locks.items()):
        _held.enter_context(writer.lock)
    databases = list(_databases)
    for database in databases:
        for place in database._places:
            _held.enter_context(place.lock)
    for database in databases:
        database.prepare_fork()


_held = ExitStack()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork, after_in_parent=_held.close, after_in_child=_held.close
    )
