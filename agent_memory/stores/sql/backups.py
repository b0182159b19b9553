"""Backup of a whole SQLite database to one file, during writes, and its restoration."""

from __future__ import annotations

import os
import sqlite3
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

from agent_memory.errors import InvalidInput, StoreError, StoreUnavailable, UnsupportedOperation
from agent_memory.stores.sql.copying import BUSY_SECONDS, copying, existing
from agent_memory.stores.sql.migrations import is_current, stored_version
from agent_memory.stores.sql.sqlite_connection import Connection

_SQLITE = "sqlite:///"
_UNFINISHED = ".unfinished"
_LEFT_SECONDS = 3600.0
"""After so many seconds without a change, an unfinished file was abandoned."""

_BEGINNING = b"SQLite format 3\0"


def is_database(file: Path) -> bool:
    """Return whether a file is a SQLite database, by its first bytes. A pipe is not read.

    Raises:
        OSError: The file cannot be read.
    """
    if file.exists() and not file.is_file():
        return False
    with file.open("rb") as opened:
        return opened.read(len(_BEGINNING)) == _BEGINNING


def back_up(url: str, file: Path) -> None:
    """Write a snapshot of a store to a file, which appears once it is complete and checked.

    Args:
        url: The store; others may use it meanwhile.
        file: The file, which replaces an existing one and is readable only by its owner.

    Raises:
        UnsupportedOperation: The store is not in a SQLite file.
        InvalidInput: The file is the store's own, or another database that is in use.
        StoreError: The store is damaged, or cannot be read now.
    """
    path, to = _path_of(url), Path(os.path.realpath(file))
    _check_different(path, to)
    if (to.exists() and not to.is_file()) or Path(f"{to}-wal").exists():
        raise InvalidInput(f"{str(file)!r} is not a file, or is in use. Choose another.")
    with _new_file_beside(to) as fresh:
        _copy(path, fresh)
        os.replace(fresh, to)


def put_back(file: Path, url: str) -> None:
    """Replace a store by a backup, completely or not at all.

    Processes that have the store open get an error at their next call, and can no longer write to
    it.

    Args:
        file: The backup. It is not changed.
        url: The store, which need not exist.

    Raises:
        UnsupportedOperation: The store is not in a SQLite file.
        InvalidInput: The file is the store's own, or holds no memory.
        SchemaTooNew: A newer release wrote the backup.
        StoreError: The backup is damaged or not a database, or the store is in use.
    """
    path = _path_of(url)
    _check_different(path, Path(os.path.realpath(file)))
    with _new_file_beside(path) as fresh:
        _copy(file, fresh)
        if path.exists():
            _copy_mode(fresh, path.stat())
        with _locked(path):
            os.replace(fresh, path)


def _path_of(url: str) -> Path:
    """Return the file of a store, with links resolved.

    Raises:
        UnsupportedOperation: The store is not a file.
    """
    if not url.startswith(_SQLITE):
        raise UnsupportedOperation(
            "agent-memory backs up and restores only stores in SQLite files. Use the "
            "tools of your database's server, such as pg_dump."
        )
    return Path(os.path.realpath(url.removeprefix(_SQLITE)))


def _check_different(path: Path, file: Path) -> None:
    if file == path:
        raise InvalidInput(f"{str(file)!r} is the store itself. Choose another file.")


@contextmanager
def _new_file_beside(file: Path) -> Iterator[Path]:
    """Provide an empty file to fill and move to a path, readable only by its owner.

    Files that killed processes have left are deleted first.
    """
    folder, prefix = file.absolute().parent, f".{file.name}."
    for leftover in folder.iterdir():
        if leftover.name.startswith(prefix) and _UNFINISHED in leftover.name:
            with suppress(OSError):
                if time.time() - leftover.stat().st_mtime > _LEFT_SECONDS:
                    leftover.unlink()
    descriptor, name = tempfile.mkstemp(prefix=prefix, suffix=_UNFINISHED, dir=folder)
    os.close(descriptor)
    try:
        yield Path(name)
    finally:
        for tail in ("", "-journal", "-wal", "-shm"):
            with suppress(OSError):
                os.unlink(f"{name}{tail}")


def _copy(path: Path, to: Path) -> None:
    """Copy a database to a single file without a write-ahead log, and check the copy.

    Raises:
        StoreError: The database is damaged, holds no memory, or is of a newer release.
    """
    with copying(path, to) as ours:
        connection = Connection(ours)
        if stored_version(connection) is None:
            raise InvalidInput(f"There is no memory in {str(path)!r}.")
        is_current(connection)
        if (problem := connection.value("PRAGMA quick_check(1)")) != "ok":
            raise StoreError(f"The SQLite database {str(path)!r} is damaged: {problem}.")
        connection.value("PRAGMA journal_mode=DELETE")


def _copy_mode(fresh: Path, like: os.stat_result) -> None:
    """Give a file the owner and the mode of another, as far as permitted."""
    if hasattr(os, "chown"):
        with suppress(OSError):
            os.chown(fresh, like.st_uid, like.st_gid)
    fresh.chmod(stat.S_IMODE(like.st_mode))


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Exclude all other writers of a database, with all its data in the main file.

    No journal remains that SQLite would apply to a new file in its place.

    Raises:
        StoreUnavailable: Others did not release the database.
    """
    with ExitStack() as stack:
        if path.exists():
            connection = stack.enter_context(closing(existing(path)))
            try:
                _take(connection, path)
            except sqlite3.DatabaseError as error:
                if "locked" in str(error):
                    raise _in_use(path) from error
                # A damaged database may be the reason for the restoration.
        for tail in ("-journal", "-wal", "-shm"):
            Path(f"{path}{tail}").unlink(missing_ok=True)
        yield


def _take(connection: sqlite3.Connection, path: Path) -> None:
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        connection.execute("BEGIN IMMEDIATE")
        log = Path(f"{path}-wal")
        if not log.exists() or not log.stat().st_size:
            return
        connection.execute("ROLLBACK")  # another connection reads, or wrote meanwhile
        if time.monotonic() > deadline:
            raise _in_use(path)
        time.sleep(0.02)


def _in_use(path: Path) -> StoreUnavailable:
    advice = "is in use. End what reads or writes it, and try again."
    return StoreUnavailable(f"The SQLite database {str(path)!r} {advice}")
