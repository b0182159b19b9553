"""Copies a SQLite database while others write, to inspect, back up or restore it."""

from __future__ import annotations

import os
import sqlite3
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from agent_memory.errors import InvalidInput, StoreError, StoreUnavailable, UnsupportedOperation
from agent_memory.stores.sql.migrations import FIRST, STEPS, is_current, stored_version
from agent_memory.stores.sql.sqlite_file import BUSY_SECONDS, MAGIC, Connection, check_log

_SQLITE, _FOLDER = "sqlite:///", "folder:///"
_MOST_PROBLEMS = 10
_STEPS_OF_SQLITE = 100_000  # steps of SQLite's virtual machine between two checks of the time
_UNFINISHED = ".unfinished"
_LEFT_SECONDS = 3600.0
"""After this many seconds without a change, an unfinished file counts as abandoned."""


def is_database(file: Path) -> bool:
    """Return whether a file begins like a SQLite database; False for a pipe, which is not read."""
    if file.exists() and not file.is_file():
        return False
    with file.open("rb") as opened:
        return opened.read(len(MAGIC)) == MAGIC


@contextmanager
def copied(url: str) -> Iterator[tuple[str, str]]:
    """Provide the URL of a store to inspect, and a description of its schema if it is SQLite.

    A SQLite file is copied, because opening the original would migrate its schema. A missing file
    or folder is replaced by an empty store. For an existing folder or a server, the URL is `url`.
    """
    path = Path(url.removeprefix(_SQLITE).removeprefix(_FOLDER)).absolute()
    if url.startswith(_SQLITE):
        check_log(os.path.realpath(path))
    if not url.startswith(_SQLITE) or not path.exists():
        missing = url.startswith((_SQLITE, _FOLDER)) and not path.exists()
        yield "memory://" if missing else url, ""
        return
    with TemporaryDirectory(prefix="agent-memory-") as folder:
        copy = Path(folder) / "copy.db"
        with copying(path, copy) as target:
            version, newest = stored_version(Connection(target)), FIRST + len(STEPS)
        later = f"; its next use migrates it to {newest}" if version and version < newest else ""
        schema = f"schema version {version}{later}" if version else "without a memory"
        yield f"{_SQLITE}{copy.as_posix()}", schema


@contextmanager
def copying(path: Path, to: Path) -> Iterator[sqlite3.Connection]:
    """Copy a database to the file `to` while others may write. Provide a connection to the copy."""
    check_log(os.path.realpath(path))
    try:
        with closing(sqlite3.connect(to, isolation_level=None)) as target:
            with closing(existing(path)) as source:
                source.backup(target)
            yield target
    except sqlite3.Error as error:
        reason = f"The file {str(path)!r} is not a database of agent-memory, or SQLite failed: "
        raise StoreUnavailable(f"{reason}{error}.") from error


def existing(path: Path) -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?mode=rw"
    return sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None)


def quick_check(path: Path, seconds: float) -> list[str] | None:
    """Return SQLite's messages about a file's first problems; None after `seconds`."""
    deadline = time.monotonic() + seconds
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True)) as connection:
        connection.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS_OF_SQLITE)
        try:
            rows = connection.execute(f"PRAGMA quick_check({_MOST_PROBLEMS})").fetchall()
        except sqlite3.OperationalError:
            return None
        except sqlite3.DatabaseError as error:
            return [str(error)]
    return [text for (text,) in rows if text != "ok"]


def back_up(url: str, file: Path) -> None:
    """Write a snapshot of a store to a file. The file appears when it is complete and checked.

    Args:
        url: The store; others may use it meanwhile.
        file: The file to write, readable only by its owner. An existing file is replaced.

    Raises:
        UnsupportedOperation: The store is not in a SQLite file.
        InvalidInput: The file is the store itself, not a regular file, or in use. Or the store is
            empty.
        StoreError: The store is damaged, or cannot be read now.
    """
    path, to = _path_of(url), Path(os.path.realpath(file))
    _check_different(path, to)
    if (to.exists() and not to.is_file()) or Path(f"{to}-wal").exists():
        raise InvalidInput(f"{str(file)!r} is not a file, or is in use. Choose another file.")
    with _new_file_beside(to) as fresh:
        _copy(path, fresh)
        os.replace(fresh, to)


def put_back(file: Path, url: str) -> None:
    """Replace a store by a backup. After an error, the store is unchanged.

    Processes that have the store open get an error at their next call, and their writes fail.

    Args:
        file: The backup. It is not changed.
        url: The store, which need not exist.

    Raises:
        UnsupportedOperation: The store is not in a SQLite file.
        InvalidInput: The file is the store itself, or has no tables of agent-memory.
        SchemaTooNew: A newer release wrote the backup.
        StoreError: The backup is damaged or not a database, or the store is in use.
    """
    path = _path_of(url)
    _check_different(path, Path(os.path.realpath(file)))
    with _new_file_beside(path) as fresh:
        _copy(file, fresh)
        if path.exists():
            like = path.stat()
            with suppress(OSError, AttributeError):  # not permitted, or Windows
                os.chown(fresh, like.st_uid, like.st_gid)
            fresh.chmod(stat.S_IMODE(like.st_mode))
        with _locked(path):
            os.replace(fresh, path)


def _path_of(url: str) -> Path:
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
    """Provide an empty file in the folder of `file`. The caller fills it, and renames it to `file`.

    Only its owner can read the new file. Abandoned files of killed processes are deleted first.
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
    """Copy a database to a single file without a write-ahead log, and check the copy."""
    with copying(path, to) as target:
        connection = Connection(target)
        if stored_version(connection) is None:
            raise InvalidInput(f"There is no memory in {str(path)!r}.")
        is_current(connection)
        if (problem := connection.value("PRAGMA quick_check(1)")) != "ok":
            raise StoreError(f"The SQLite database {str(path)!r} is damaged: {problem}.")
        connection.value("PRAGMA journal_mode=DELETE")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Move all data of a database into its main file, and exclude other writers.

    Journals are removed, because SQLite would apply them to a file that replaces the main file.
    """
    with ExitStack() as stack:
        if path.exists():
            connection = stack.enter_context(closing(existing(path)))
            try:
                _take(connection, path)
            except sqlite3.DatabaseError as error:
                if "locked" in str(error):
                    raise _in_use(path) from error
                # Other errors are ignored: a damaged database may be the reason to restore.
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
    advice = "is in use. End all processes that use it, and try again."
    return StoreUnavailable(f"The SQLite database {str(path)!r} {advice}")
