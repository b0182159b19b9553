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
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeAlias, TypeVar

from agent_memory.core.processes import is_own, known_lock
from agent_memory.errors import Damaged, StoreError, StoreUnavailable
from agent_memory.stores.base import Durability
from agent_memory.stores.erasures import Erasures
from agent_memory.stores.sql.database import SQLConnection
from agent_memory.stores.sql.migrations import is_current
from agent_memory.stores.sql.places import Places
from agent_memory.stores.sql.sqlite_connection import BUSY_SECONDS, Connection, connect
from agent_memory.stores.sql.sqlite_file import Identity, SQLiteFile
from agent_memory.stores.sql.sqlite_pages import NoTree
from agent_memory.stores.sql.sqlite_raw import RawFile

T = TypeVar("T")

_NO_TABLE = "no such table"
_MALFORMED = "disk image is malformed"
_SCRUB_SECONDS = 5.0
_PAGES_AT_ONCE = 500  # writers wait meanwhile
_MOST_READERS = 32
_MOST_IDLE = 8
_ROOTS = "SELECT rootpage FROM sqlite_master WHERE rootpage > 0"
_WITHIN = (
    "The handler of a signal cannot write to the database while the code that it interrupts does. "
    "Have it note what is to be done, and do that afterwards."
)

logger = logging.getLogger(__name__)

_locks: weakref.WeakValueDictionary[str, _WriterLock] = weakref.WeakValueDictionary()
_databases: weakref.WeakSet[Database] = weakref.WeakSet()


class _WriterLock:
    """Lets one thread of this process write a file; the others need not poll SQLite for it."""

    def __init__(self) -> None:
        self.lock = known_lock()
        self.erasures = Erasures()
        self.raw: RawFile | None = None


_beginning = threading.RLock()
"""Held while there begins to be a `Database`; a fork has none begin."""


class Database:
    """A SQLite file.

    Args:
        path: The file, created if it does not exist; its folder must exist.
        durability: What a committed transaction survives.

    Raises:
        StoreUnavailable: The folder does not exist, or the file can't be made.
    """

    def __init__(self, path: str, durability: Durability = "process") -> None:
        self._durability: Durability = durability
        self._closed = False
        self._writing: Connection | None = None
        self._places: Places[Connection] = Places(_MOST_READERS, _MOST_IDLE)
        with _beginning:
            self._writer = _locks.setdefault(os.path.realpath(path), _WriterLock())
            with self._writer.lock:  # closing a file drops the locks that SQLite has taken on it
                self._file = SQLiteFile(path)
            _databases.add(self)

    def read(self, work: Callable[[Connection], T]) -> T:
        """Run `work` outside of a transaction: each of its statements sees one state.

        Raises:
            StoreUnavailable: The database cannot be used now.
        """
        try:
            place = self._places.any()
            with place.lock:
                connection = place.connection = place.connection or self._connected()
                try:
                    return self._done(work, connection)
                finally:
                    if self._closed or self._file.is_lost or not place.keeps:
                        place.clear()
        except sqlite3.Error as error:
            raise self._failure(error) from error

    def alone(self, work: Callable[[Connection], T]) -> T:
        """Run `work` while no other thread of this process writes.

        Each of its statements is a transaction of its own.

        Raises:
            StoreUnavailable: The database cannot be used now.
        """
        if is_own(self._writer.lock):
            raise StoreUnavailable(_WITHIN)
        return self._alone(work)

    def _alone(self, work: Callable[[Connection], T]) -> T:
        try:
            with self._writer.lock:
                connection = self._writing
                if connection is None or connection.in_transaction:
                    self._stop_writing()  # a signal's exception has left it so
                    self._compare(None)
                    connection = self._writing = self._connected()
                try:
                    done = work(connection)
                    self._compare(connection.log)
                    return done
                except sqlite3.Error:
                    self._compare(connection.log)  # which may tell why
                    raise
                finally:
                    if self._closed or self._file.is_lost or connection.in_transaction:
                        self._stop_writing()
                        if self._file.is_lost:
                            self._places.clear()
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
        """Empty its write-ahead log and the gaps of its pages: no file tells what was deleted.

        SQLite zeroes what is deleted where it stands. But where pages were split or merged, copies
        of the rows that moved stay in the gaps of the pages they left, and outlive these rows. Such
        pages are looked for while others write; to empty them takes a moment in which nobody does.
        Threads that ask at the same time share it.

        What does not work now (another process reads an old state, the disk is full) works with the
        next call; a warning says so.

        Raises:
            Damaged: The file is.
            StoreUnavailable: The database cannot be used now.
        """
        self._writer.erasures.share(self._erase)

    def _erase(self) -> None:
        deadline = time.monotonic() + _SCRUB_SECONDS
        if is_own(self._writer.lock):
            raise StoreUnavailable(_WITHIN)
        if not self._until(deadline, lambda: self.read(_write_back)):
            return
        try:
            suspects = list(self._raw().untidy())
            # once at least: if somebody was killed right after it, others may remember old pages
            for start in range(0, max(len(suspects), 1), _PAGES_AT_ONCE):
                some = suspects[start : start + _PAGES_AT_ONCE]
                if not self._until(deadline, partial(self._tidy, some)):
                    return
        except (StoreUnavailable, OSError) as error:
            logger.warning(
                "%s Copies of what was deleted from %r could not be overwritten: they may stand in "
                "the gaps of its pages until the next deletion.", error, self._file.path,
            )  # fmt: skip
        # while others may write: what is written by now nobody waits for
        self.read(_write_back)
        self._until(deadline, lambda: self.alone(_empty_log))

    def _until(self, deadline: float, step: Callable[[], bool]) -> bool:
        while not step():
            if time.monotonic() > deadline:
                logger.warning(
                    "the write-ahead log of %r is held open by a reader: what was deleted may "
                    "stand in it until the next deletion, or until all have closed the database",
                    self._file.path,
                )
                return False
            time.sleep(0.02)
        return True

    def _tidy(self, suspects: Sequence[int]) -> bool:
        """Empty the gaps of pages; False while an old state is read.

        Nobody writes meanwhile: to the log for the transaction, to the file since it has it all.
        """

        def work(connection: Connection) -> bool:
            if not self.read(_write_back):
                return False
            self._file.check(connection.log)
            try:
                self._raw().tidy([root for (root,) in connection.rows_of(_ROOTS)], suspects)
            except NoTree as error:
                raise sqlite3.DatabaseError(_MALFORMED) from error
            # a change: who remembers pages with what was in their gaps reads them anew
            connection.value(f"PRAGMA user_version={connection.value('PRAGMA user_version')}")
            return True

        with self._writer.lock:
            self._stop_writing()  # it remembers such pages too, and they would not be foreign to it
            return self._alone(lambda one: one.transaction(lambda _: work(one)))

    def _compare(self, log: Identity | None) -> None:
        """See that the file is that which others find, and that nobody but SQLite has written to
        it. Who does it may write."""
        there = self._file.check(log)
        if there is not None and self._file.is_written(there):
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

    def close(self) -> None:
        """Wait for what is being written, and close the connections. Idempotent."""
        self._closed = True
        self._places.clear()
        with self._writer.lock:
            if self._writing is not None:
                with suppress(StoreUnavailable):  # the log of a file that was replaced goes aside
                    self._file.check(self._writing.log)
            self._stop_writing()
        with _beginning, self._writer.lock:
            if all(one._closed for one in _databases if one._writer is self._writer):
                self._writer.raw = None

    def _done(self, work: Callable[[Connection], T], connection: Connection) -> T:
        """What comes of `work`, done in the file that others find."""
        try:
            done = work(connection)
        except sqlite3.Error:
            self._file.check(connection.log)  # which may tell why
            raise
        self._file.check(connection.log)
        return done

    def _connected(self) -> Connection:
        if self._closed:
            raise StoreUnavailable("The store was closed. Open a new one.")
        self._file.check(None)
        others = self._open()
        raw, made_as = connect(self._file.path, self._durability)
        connection = Connection(raw, self._file.opened(made_as))
        try:
            for other in set(others).intersection(self._open()):
                self._file.check(other.log)  # open all the time, it shares the log
        except BaseException:
            connection.close()
            raise
        return connection

    def _open(self) -> list[Connection]:
        """Connections that nobody closes before they are taken from where they are."""
        every = [place.connection for place in self._places]
        return [one for one in [*every, self._writing] if one is not None]

    def _stop_writing(self) -> None:
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.close()

    def _failure(self, error: sqlite3.Error) -> StoreError:
        text = f"The SQLite database {self._file.name!r} failed: {error}."
        if _NO_TABLE in str(error):
            self.read(is_current)  # which tells of a newer release
        if isinstance(error, sqlite3.OperationalError):
            return StoreUnavailable(text)
        if _MALFORMED in str(error):  # here: other pages of the file can be used
            return Damaged(f"{text} Run `agent-memory doctor`, and put a backup back.")
        return StoreError(text)

    @property
    def locks(self) -> list[threading.Lock]:
        """Of its readers."""
        return [place.lock for place in self._places]

    def prepare_fork(self) -> None:
        """Close the connections, while nobody uses any.

        The child would believe that it holds the locks of those that crossed the fork.
        """
        for place in self._places:
            place.clear()
        self._stop_writing()


def _write_back(connection: Connection) -> bool:
    """Write what is in the log to the file; whether all of it is there now. No writer waits."""
    ((busy, logged, written),) = connection.rows_of("PRAGMA wal_checkpoint(PASSIVE)")
    return not busy and logged == written


def _empty_log(connection: Connection) -> bool:
    connection.value("PRAGMA busy_timeout=0")  # it would keep all writers out meanwhile
    try:
        busy = connection.value("PRAGMA wal_checkpoint(TRUNCATE)")
    finally:
        connection.value(f"PRAGMA busy_timeout={BUSY_SECONDS * 1000:.0f}")
    return not busy


def _before_fork() -> None:
    _hold(_beginning)
    for _, writer in sorted(_locks.items()):
        _hold(writer.lock)
    databases = list(_databases)
    for database in databases:
        for lock in database.locks:
            _hold(lock)
    for database in databases:
        database.prepare_fork()


def _hold(lock: _Lock) -> None:
    lock.acquire()
    _held.append(lock)


def _after_fork() -> None:
    while _held:
        _held.pop().release()


_Lock: TypeAlias = "threading.Lock | threading.RLock"
_held: list[_Lock] = []

if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=_after_fork,
        after_in_child=_after_fork,
    )
