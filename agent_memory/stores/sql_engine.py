"""An SQL database as the stores use it: short reads, and writes in transactions of their own.

What only SQLite needs (WAL, BEGIN IMMEDIATE, one writer at a time) is here and nowhere else.
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

from sqlalchemy import URL, Connection, QueuePool, create_engine
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError

from agent_memory.errors import StoreError, StoreUnavailable
from agent_memory.stores.base import Durability

T = TypeVar("T")

_BUSY_SECONDS = 30.0
_TRIES = 20
_SCRUB_SECONDS = 5.0
_REWRITE_BYTES = 2**30  # more would keep other processes waiting for about their _BUSY_SECONDS

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
        self._closed = False
        real = os.path.realpath(path)
        self._writer = _locks.setdefault(real, _WriterLock())
        self._engine = create_engine(
            URL.create("sqlite", database=path),
            creator=lambda: _connect(path, durability),
            poolclass=QueuePool,
            pool_size=8,
            max_overflow=24,
            hide_parameters=True,  # messages are nobody's business in a traceback
        )
        _databases.add(self)

    def read(self, work: Callable[[Connection], T]) -> T:
        """Run `work` outside of a transaction: each of its statements sees one state.

        Raises:
            StoreUnavailable: The database cannot be used now.
        """
        try:
            return self._run(work)
        except DBAPIError as error:
            raise self._failure(error) from error

    def write(self, work: Callable[[Connection], T]) -> T:
        """Run `work` in one transaction; again from the start where another writer came first.

        Raises:
            StoreUnavailable: The database cannot be used now.
        """

        def transaction(connection: Connection) -> T:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            result = work(connection)
            connection.commit()
            return result

        for _ in range(_TRIES):
            try:
                with self._writer.lock:
                    return self._run(transaction)
            except IntegrityError:
                continue
            except DBAPIError as error:
                raise self._failure(error) from error
        raise StoreUnavailable(f"Too many writers at once in the database {self._path!r}.")

    def scrub(self) -> None:
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
        while not self._locked(_empty_log):
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
                connection.exec_driver_sql("VACUUM")
                writer.rewrites += 1

        try:
            self._locked(vacuum)
        except StoreUnavailable as error:
            logger.warning(
                "%s It could not be rewritten: copies of what was deleted may stand in the gaps of "
                "its pages until the next deletion.", error,
            )  # fmt: skip

    def close(self) -> None:
        """Close the connections. Idempotent."""
        self._closed = True
        self._engine.pool.dispose()

    def _locked(self, work: Callable[[Connection], T]) -> T:
        try:
            with self._writer.lock:
                return self._run(work)
        except DBAPIError as error:
            raise self._failure(error) from error

    def _run(self, work: Callable[[Connection], T]) -> T:
        if self._closed:
            raise StoreUnavailable("The store was closed. Open a new one.")
        pool = self._engine.pool
        try:
            with _gate, self._engine.connect() as connection:
                return work(connection)
        finally:
            if self._closed:  # closed meanwhile: what was just given back would stay open
                pool.dispose()

    def _failure(self, error: DBAPIError) -> StoreError:
        text = f"The SQLite database {self._path!r} failed: {error.orig}."
        return StoreUnavailable(text) if isinstance(error, OperationalError) else StoreError(text)

    def forget_connections(self) -> None:
        """In a forked child: leave the parent's connections alone and begin with none."""
        self._engine.dispose(close=False)

    def drop_idle(self) -> None:
        """Before a fork: close the connections.

        The child would believe that it holds the locks of those that crossed the fork.
        """
        self._engine.pool.dispose()


def _size(connection: Connection) -> int:
    pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
    return int(pages * connection.exec_driver_sql("PRAGMA page_size").scalar_one())


def _empty_log(connection: Connection) -> bool:
    connection.exec_driver_sql("PRAGMA busy_timeout=0")  # it would keep all writers out meanwhile
    try:
        busy = connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").one()[0]
    finally:
        connection.exec_driver_sql(f"PRAGMA busy_timeout={_BUSY_SECONDS * 1000:.0f}")
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
        database.drop_idle()


def _after_fork() -> None:
    _gate.open()
    while _held:
        _held.pop().lock.release()


def _after_fork_in_child() -> None:
    for database in list(_databases):
        database.forget_connections()
    _after_fork()


_held: list[_WriterLock] = []

if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=_after_fork,
        after_in_child=_after_fork_in_child,
    )
