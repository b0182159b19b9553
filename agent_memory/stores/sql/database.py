"""What `SQLStore` needs of a database: SQLite's is in `sqlite`, that of servers in `server`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from agent_memory.errors import StoreUnavailable

T = TypeVar("T")


class TableMissing(StoreUnavailable):
    """A table is not there: perhaps a newer release has migrated the database meanwhile."""


class SQLConnection(Protocol):
    """A connection that runs the named statements, for one thread at a time."""

    @property
    def dialect(self) -> str:
        """What the database speaks: sqlite, postgresql, mysql or mariadb."""
        ...

    @property
    def most_text(self) -> int | None:
        """How many characters a text of a statement may have; None for any number."""
        ...

    @property
    def schema(self) -> Sequence[str]:
        """What makes all tables and indexes, in order."""
        ...

    def run(self, name: str, values: Mapping[str, Any]) -> int:
        """Run a statement; how many rows it changed."""
        ...

    def run_each(self, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Run a statement for each of many rows of values."""
        ...

    def rows(self, name: str, values: Mapping[str, Any]) -> list[Any]:
        """All rows that a statement returns, with named columns."""
        ...

    def row(self, name: str, values: Mapping[str, Any]) -> Any:
        """The one row that a statement returns, or None."""
        ...

    def value(self, text: str) -> Any:
        """Run a statement given as text; the first column of its first row, or None."""
        ...

    def define(self, text: str) -> None:
        """Run a statement, given as text, that makes or changes tables."""
        ...

    def has_table(self, name: str) -> bool:
        """Whether the database has a table of that name."""
        ...

    def lock(self, values: Mapping[str, Any]) -> bool:
        """Keep other writers away from a session for the rest of the transaction.

        False where it was looked for, and there is none. What is read after it is up to date.
        """
        ...

    def schedule_all(self, values: Mapping[str, Any]) -> None:
        """Make all sessions of a namespace due."""
        ...

    def transaction(self, work: Callable[[SQLConnection], T]) -> T:
        """Run `work` in a transaction: all of it is done, or nothing.

        Where another transaction was in its way, it may run several times until it is done.
        """
        ...


class SQLDatabase(Protocol):
    """Runs work on connections. What fails is `StoreUnavailable`, or another `StoreError`."""

    def read(self, work: Callable[[SQLConnection], T]) -> T:
        """Run `work` outside of a transaction: each of its statements sees one state."""
        ...

    def alone(self, work: Callable[[SQLConnection], T]) -> T:
        """Run `work`, each of whose statements is a transaction of its own.

        On SQLite no other thread of this process writes meanwhile.
        """
        ...

    def write(self, work: Callable[[SQLConnection], T]) -> T:
        """Run `work` in one transaction."""
        ...

    def patiently(self, work: Callable[[SQLConnection], None]) -> None:
        """Run `work`, which may be long, in one transaction while no other process runs such work.

        Where the database has no transactions for changes of tables, these are done one by one.
        """
        ...

    def secure_erase(self) -> None:
        """Erase what was deleted, as far as the database allows."""
        ...

    def close(self) -> None:
        """Close the connections. Idempotent."""
        ...
