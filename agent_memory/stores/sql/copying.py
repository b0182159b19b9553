"""Copies of a SQLite database: to look at, to keep, and to put back."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from agent_memory.errors import StoreUnavailable
from agent_memory.stores.sql.migrations import FIRST, STEPS, stored_version
from agent_memory.stores.sql.sqlite_connection import Connection

BUSY_SECONDS = 30.0
"""How long others are waited for."""

_SQLITE, _FOLDER = "sqlite:///", "folder:///"


@contextmanager
def copied(url: str) -> Iterator[tuple[str, str]]:
    """The URL to look at instead of a store's own, and the schema of a SQLite database in words.

    Opening that itself would bring its schema up to date, or make it: for one that is not there an
    empty store stands in. Servers and folders can't be copied, and are looked at as they are.

    Raises:
        StoreUnavailable: The file is no database, or cannot be read now.
    """
    path = Path(url.removeprefix(_SQLITE).removeprefix(_FOLDER)).absolute()
    if not url.startswith(_SQLITE) or not path.exists():
        missing = url.startswith((_SQLITE, _FOLDER)) and not path.exists()
        yield "memory://" if missing else url, ""
        return
    with TemporaryDirectory(prefix="agent-memory-") as folder:
        copy = Path(folder) / "copy.db"
        with copying(path, copy) as ours:
            found, newest = stored_version(Connection(ours)), FIRST + len(STEPS)
        later = f"; the next use makes it {newest}" if found and found < newest else ""
        schema = f"schema version {found}{later}" if found else "with no memory in it yet"
        yield f"{_SQLITE}{copy.as_posix()}", schema


@contextmanager
def copying(path: Path, to: Path) -> Iterator[sqlite3.Connection]:
    """A connection to a copy as the database is at one moment; others may write meanwhile.

    Raises:
        StoreUnavailable: The file is no database, or cannot be read now.
    """
    try:
        with closing(sqlite3.connect(to, isolation_level=None)) as ours:
            with closing(existing(path)) as theirs:
                theirs.backup(ours)
            yield ours
    except sqlite3.Error as error:
        told = f"The SQLite database {str(path)!r} is not one of agent-memory, or failed: "
        raise StoreUnavailable(f"{told}{error}.") from error


def existing(path: Path) -> sqlite3.Connection:
    """A connection to a database that is there; it makes none."""
    uri = f"{path.absolute().as_uri()}?mode=rw"
    return sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None)
