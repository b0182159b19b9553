"""A connection to SQLite that runs the named statements."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from agent_memory.stores.sql.database import SQLConnection
from agent_memory.stores.sql.sqlite_statements import SCHEMA, STATEMENTS

T = TypeVar("T")


class Connection:
    """One connection, for one thread at a time; each statement is a transaction of its own.

    Args:
        raw: The driver's, in autocommit mode.

    Attributes:
        dialect: What it speaks.
        schema: What makes all tables and indexes, in order.
    """

    dialect = "sqlite"
    schema: Sequence[str] = SCHEMA

    def __init__(self, raw: sqlite3.Connection) -> None:
        self._raw = raw
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
        found = self._raw.execute(*statement.filled(values)).fetchall()
        return list(map(statement.row, found))

    def row(self, name: str, values: Mapping[str, Any]) -> Any:
        """The one row that a statement returns, or None."""
        found = self.rows(name, values)
        return found[0] if found else None

    def value(self, text: str) -> Any:
        """Run a statement given as text; the first column of its first row, or None."""
        found = self._raw.execute(text).fetchall()
        return found[0][0] if found else None

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
        self._raw.execute("BEGIN IMMEDIATE")
        try:
            result = work(self)
            self._raw.execute("COMMIT")
        except BaseException:
            if self._raw.in_transaction:
                self._raw.execute("ROLLBACK")
            raise
        return result
