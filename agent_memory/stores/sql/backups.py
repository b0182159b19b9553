"""A whole SQLite database as one file: taken while others write, and put back."""

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
"""Nobody works on what has not changed for so long."""

_BEGINNING = b"SQLite format 3\0"


def is_database(file: Path) -> bool:
    """Whether a file is a SQLite database, by its first bytes; a pipe is not looked into.

    Raises:
        OSError: It can't be read.
    """
    if file.exists() and not file.is_file():
        return False
    with file.open("rb") as opened:
        return opened.read(len(_BEGINNING)) == _BEGINNING


def back_up(url: str, file: Path) -> None:
    """Write a store to a file, as it is at one moment. It appears once it is whole and checked.

    Args:
        url: The store; others may use it meanwhile.
        file: In place of what was there; readable by its owner alone.

    Raises:
        UnsupportedOperation: The store is not in a SQLite file.
        InvalidInput: The file is the store's own, or another database that is in use.
        StoreError: The store is damaged, or can't be read now.
    """
    path, to = _path_of(url), Path(os.path.realpath(file))
    _check_apart(path, to)
    if (to.exists() and not to.is_file()) or Path(f"{to}-wal").exists():
        raise InvalidInput(f"{str(file)!r} is no file, or is in use. Name another.")
    with _made_beside(to) as fresh:
        _copy(path, fresh)
        os.replace(fresh, to)


def put_back(file: Path, url: str) -> None:
    """Put a backup in the place of a store, whole or not at all.

    Whoever has the store open is told by the next call, and writes to nothing that stays.

    Args:
        file: The backup. It stays as it is.
        url: The store, which need not exist.

    Raises:
        UnsupportedOperation: The store is not in a SQLite file.
        InvalidInput: The file is the store's own, or holds no memory.
        SchemaTooNew: A newer release wrote the backup.
        StoreError: The backup is damaged or none, or the store is in use.
    """
    path = _path_of(url)
    _check_apart(path, Path(os.path.realpath(file)))
    with _made_beside(path) as fresh:
        _copy(file, fresh)
        if path.exists():
            _dress(fresh, path.stat())
        with _held(path):
            os.replace(fresh, path)


def _path_of(url: str) -> Path:
    """The file of a store, its links followed.

    Raises:
        UnsupportedOperation: It has none.
    """
    if not url.startswith(_SQLITE):
        raise UnsupportedOperation(
            "Only a store in a SQLite file is backed up and restored by agent-memory. Use the "
            "tools of your database's server, such as pg_dump."
        )
    return Path(os.path.realpath(url.removeprefix(_SQLITE)))


def _check_apart(path: Path, file: Path) -> None:
    if file == path:
        raise InvalidInput(f"{str(file)!r} is the store itself. Name another file.")


@contextmanager
def _made_beside(file: Path) -> Iterator[Path]:
    """An empty file to be filled and moved to a path, readable by its owner alone.

    Those that killed processes have left go first.
    """
    folder, prefix = file.absolute().parent, f".{file.name}."
    for one in folder.iterdir():
        if one.name.startswith(prefix) and _UNFINISHED in one.name:
            with suppress(OSError):
                if time.time() - one.stat().st_mtime > _LEFT_SECONDS:
                    one.unlink()
    descriptor, name = tempfile.mkstemp(prefix=prefix, suffix=_UNFINISHED, dir=folder)
    os.close(descriptor)
    try:
        yield Path(name)
    finally:
        for tail in ("", "-journal", "-wal", "-shm"):
            with suppress(OSError):
                os.unlink(f"{name}{tail}")


def _copy(path: Path, to: Path) -> None:
    """Copy a database, as a single file without a write-ahead log, and check the copy.

    Raises:
        StoreError: It is damaged, holds no memory, or is of a newer release.
    """
    with copying(path, to) as ours:
        connection = Connection(ours)
        if stored_version(connection) is None:
            raise InvalidInput(f"There is no memory in {str(path)!r}.")
        is_current(connection)
        if (found := connection.value("PRAGMA quick_check(1)")) != "ok":
            raise StoreError(f"The SQLite database {str(path)!r} is damaged: {found}.")
        connection.value("PRAGMA journal_mode=DELETE")


def _dress(fresh: Path, like: os.stat_result) -> None:
    """Give a file the owner and the mode of another, as far as that is permitted."""
    if hasattr(os, "chown"):
        with suppress(OSError):
            os.chown(fresh, like.st_uid, like.st_gid)
    fresh.chmod(stat.S_IMODE(like.st_mode))


@contextmanager
def _held(path: Path) -> Iterator[None]:
    """Keep all others from writing to a database, whose file then holds all that was written.

    Nothing stands beside it any more that would be played over another file in its place.

    Raises:
        StoreUnavailable: Others did not let go of it.
    """
    with ExitStack() as stack:
        if path.exists():
            held = stack.enter_context(closing(existing(path)))
            try:
                _take(held, path)
            except sqlite3.DatabaseError as error:
                if "locked" in str(error):
                    raise _in_use(path) from error
                # else it is damaged, which may be why a backup is put back
        for tail in ("-journal", "-wal", "-shm"):
            Path(f"{path}{tail}").unlink(missing_ok=True)
        yield


def _take(held: sqlite3.Connection, path: Path) -> None:
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        held.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        held.execute("BEGIN IMMEDIATE")
        log = Path(f"{path}-wal")
        if not log.exists() or not log.stat().st_size:
            return
        held.execute("ROLLBACK")  # somebody reads, or wrote meanwhile
        if time.monotonic() > deadline:
            raise _in_use(path)
        time.sleep(0.02)


def _in_use(path: Path) -> StoreUnavailable:
    told = "is in use. End what reads or writes it, and try again."
    return StoreUnavailable(f"The SQLite database {str(path)!r} {told}")
