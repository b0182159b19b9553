"""A connection to SQLite that runs the named statements."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from agent_memory.stores.base import Durability
from agent_memory.stores.sql.database import SQLConnection
from agent_memory.stores.sql.sqlite_file import Identity
from agent_memory.stores.sql.sqlite_header import new_id
from agent_memory.stores.sql.sqlite_words import SCHEMA, STATEMENTS

T = TypeVar("T")

BUSY_SECONDS = 30.0

_NO_TEXT = "Could not decode to UTF-8"


def _text_or_bytes(raw: bytes) -> str | bytes:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


class Connection:
    """One connection, for one thread at a time; each statement is a transaction of its own.

    Args:
        raw: The driver's, in autocommit mode.
        log: The write-ahead log that it has open, if any.

    Attributes:
        dialect: What it speaks.
        most_text: A text may have any number of characters.
        schema: What makes all tables and indexes, in order.
    """

    dialect = "sqlite"
    most_text: int | None = None
    schema: Sequence[str] = SCHEMA

    def __init__(self, raw: sqlite3.Connection, log: Identity | None = None) -> None:
        self._raw = raw
        self.log = log
        self.close = raw.close

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        return self._raw.in_transaction

    def run(self, name: str, values: Mapping[str, Any]) -> int:
        """Run a statement; how many rows it changed."""
        return self._raw.execute(*STATEMENTS[name].filled(values)).rowcount

    def run_each(self, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Run a statement for each of many rows of values."""
        statement = STATEMENTS[name]
        self._raw.executemany(statement.text, [statement.filled(row)[1] for row in rows])

    def rows(self, name: str, values: Mapping[str, Any]) -> list[Any]:
        """All rows that a statement returns, with named columns."""
        statement = STATEMENTS[name]
        text, filled = statement.filled(values)
        try:
            found = self._raw.execute(text, filled).fetchall()
        except sqlite3.OperationalError as error:
            if _NO_TEXT not in str(error):
                raise
            found = self._undecoded(text, filled)
        return list(map(statement.row, found))

    def _undecoded(self, text: str, filled: Sequence[Any]) -> list[Any]:
        """The same rows, with what is no text any more as bytes: the others can be used."""
        self._raw.text_factory = _text_or_bytes
        try:
            return self._raw.execute(text, filled).fetchall()
        finally:
            self._raw.text_factory = str

    def row(self, name: str, values: Mapping[str, Any]) -> Any:
        """The one row that a statement returns, or None."""
        found = self.rows(name, values)
        return found[0] if found else None

    def value(self, text: str) -> Any:
        """Run a statement given as text; the first column of its first row, or None."""
        found = self.rows_of(text)
        return found[0][0] if found else None

    def rows_of(self, text: str) -> list[tuple[Any, ...]]:
        """Run a statement given as text; all its rows."""
        return self._raw.execute(text).fetchall()

    def has_table(self, name: str) -> bool:
        """Whether the database has a table of that name."""
        query = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
        return self._raw.execute(query, [name]).fetchone() is not None

    def define(self, text: str) -> None:
        """Run a statement, given as text, that makes or changes tables."""
        self._raw.execute(text)

    def lock(self, values: Mapping[str, Any]) -> bool:
        """Nothing to do: a transaction keeps all other writers out of the file."""
        return True

    def schedule_all(self, values: Mapping[str, Any]) -> None:
        """Make all sessions of a namespace due."""
        self.run("schedule_all", values)

    def transaction(self, work: Callable[[SQLConnection], T]) -> T:
        """Run `work` in a transaction: all of it is done, or nothing."""
        with self._raw:  # ends it, whenever the exception of a signal comes
            self._raw.execute("BEGIN IMMEDIATE")
            return work(self)


def connect(path: str, durability: Durability) -> tuple[sqlite3.Connection, int]:
    """A connection to a file, and which database that is; an empty file becomes a new one."""
    connection = sqlite3.connect(
        path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
    )
    try:
        _make(connection)
        mode = _switch_to_wal(connection)
        # NORMAL is safe in WAL mode only; a file system without shared memory has no WAL
        relaxed = durability == "process" and mode == "wal"
        connection.execute(f"PRAGMA synchronous={'NORMAL' if relaxed else 'FULL'}")
        connection.execute("PRAGMA secure_delete=ON")  # what is deleted is zeroed in the file
        # opens the log, which is made here
        (made_as,) = connection.execute("PRAGMA application_id").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection, made_as


def _make(connection: sqlite3.Connection) -> None:
    """Say in an empty file which database it is going to be."""
    if connection.execute("PRAGMA page_count").fetchone()[0]:
        return
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        if not connection.execute("PRAGMA application_id").fetchone()[0]:  # nobody else was first
            connection.execute(f"PRAGMA application_id={new_id()}")


def _switch_to_wal(connection: sqlite3.Connection) -> str:
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            return str(connection.execute("PRAGMA journal_mode=WAL").fetchone()[0])
        except sqlite3.OperationalError as error:
            # SQLite does not wait for the lock here, whatever the busy timeout
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
