"""Connections to SQLite."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from agent_memory.stores.base import Durability
from agent_memory.stores.sql.database import SQLConnection
from agent_memory.stores.sql.sqlite_file import Identity
from agent_memory.stores.sql.sqlite_header import new_id

T = TypeVar("T")

BUSY_SECONDS = 30.0

_NO_TEXT = "Could not decode to UTF-8"


def _text_or_bytes(raw: bytes) -> str | bytes:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


class Connection:
    """One connection, for one thread at a time. Each statement is a transaction of its own.

    Args:
        raw: The driver's connection, in autocommit mode.
        log: The identity of the open write-ahead log, if any.

    Attributes:
        dialect: The SQL dialect.
        most_text: None: a text may have any number of characters.
    """

    dialect = "sqlite"
    most_text: int | None = None

    def __init__(self, raw: sqlite3.Connection, log: Identity | None = None) -> None:
        self._raw = raw
        self.log = log
        self.close = raw.close

    @property
    def in_transaction(self) -> bool:
        """Return whether a transaction is open."""
        return self._raw.in_transaction

    def run(self, text: str, values: Sequence[Any] = ()) -> int:
        """Run a statement, and return the number of changed rows."""
        return self._raw.execute(text, values).rowcount

    def run_each(self, text: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run a statement for each row of values."""
        self._raw.executemany(text, rows)

    def rows(self, text: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Return all rows of a statement."""
        try:
            return self._raw.execute(text, values).fetchall()
        except sqlite3.OperationalError as error:
            if _NO_TEXT not in str(error):
                raise
            return self._undecoded(text, values)

    def _undecoded(self, text: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Return the rows, with damaged texts as bytes, so that the others can be used."""
        self._raw.text_factory = _text_or_bytes
        try:
            return self._raw.execute(text, values).fetchall()
        finally:
            self._raw.text_factory = str

    def value(self, text: str, values: Sequence[Any] = ()) -> Any:
        """Return the first column of a statement's first row, or None."""
        rows = self.rows(text, values)
        return rows[0][0] if rows else None

    def has_table(self, name: str) -> bool:
        """Return whether the database has a table of that name."""
        query = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
        return self._raw.execute(query, [name]).fetchone() is not None

    def define(self, text: str) -> None:
        """Run a statement that creates or changes tables."""
        self._raw.execute(text)

    def transaction(self, work: Callable[[SQLConnection], T]) -> T:
        """Run `work` in a transaction: completely or not at all."""
        with self._raw:  # ends the transaction, even after the exception of a signal
            self._raw.execute("BEGIN IMMEDIATE")
            return work(self)


def connect(path: str, durability: Durability | None) -> tuple[sqlite3.Connection, int]:
    """Connect to a file, and return its database id. An empty file becomes a new database."""
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
        # opens the log, which the first connection creates
        (made_as,) = connection.execute("PRAGMA application_id").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection, made_as


def _set_id(connection: sqlite3.Connection) -> None:
    """Write the id of a new database into an empty file."""
    if connection.execute("PRAGMA page_count").fetchone()[0]:
        return
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        if not connection.execute("PRAGMA application_id").fetchone()[
            0
        ]:  # no other process was first
            connection.execute(f"PRAGMA application_id={new_id()}")


def _switch_to_wal(connection: sqlite3.Connection) -> str:
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            return str(connection.execute("PRAGMA journal_mode=WAL").fetchone()[0])
        except sqlite3.OperationalError as error:
            # SQLite does not wait for this lock, whatever the busy timeout.
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
