"""Copies of a SQLite database, for inspection, backup and restoration."""

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
"""The seconds to wait for other connections."""

_SQLITE, _FOLDER = "sqlite:///", "folder:///"


@contextmanager
def copied(url: str) -> Iterator[tuple[str, str]]:
    """Provide a URL for the inspection of a store, and the schema of a SQLite database in words.

    To open the store itself would migrate or create its schema. An empty store replaces a missing
    one. Servers and folders cannot be copied, and keep their own URL.

    Raises:
        StoreUnavailable: The file is not a database, or cannot be read now.
    """
    path = Path(url.removeprefix(_SQLITE).removeprefix(_FOLDER)).absolute()
    if not url.startswith(_SQLITE) or not path.exists():
        missing = url.startswith((_SQLITE, _FOLDER)) and not path.exists()
        yield "memory://" if missing else url, ""
        return
    with TemporaryDirectory(prefix="agent-memory-") as folder:
        copy = Path(folder) / "copy.db"
        with copying(path, copy) as ours:
            version, newest = stored_version(Connection(ours)), FIRST + len(STEPS)
        later = f"; the next use migrates it to {newest}" if version and version < newest else ""
        schema = f"schema version {version}{later}" if version else "without a memory"
        yield f"{_SQLITE}{copy.as_posix()}", schema


@contextmanager
def copying(path: Path, to: Path) -> Iterator[sqlite3.Connection]:
    """Provide a connection to a snapshot of a database. Others may write meanwhile.

    Raises:
        StoreUnavailable: The file is not a database, or cannot be read now.
    """
    try:
        with closing(sqlite3.connect(to, isolation_level=None)) as ours:
            with closing(existing(path)) as theirs:
                theirs.backup(ours)
            yield ours
    except sqlite3.Error as error:
        reason = f"The SQLite database {str(path)!r} is not one of agent-memory, or failed: "
        raise StoreUnavailable(f"{reason}{error}.") from error


def existing(path: Path) -> sqlite3.Connection:
    """Connect to an existing database, without creating one."""
    uri = f"{path.absolute().as_uri()}?mode=rw"
    return sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None)
