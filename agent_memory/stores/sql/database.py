"""The protocols of a database for `SQLKernel`; `sqlite` and `server` implement them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from agent_memory.errors import StoreUnavailable

T = TypeVar("T")


class TableMissing(StoreUnavailable):
    """A table is missing: a newer release may have migrated the database."""


class SQLConnection(Protocol):
    """A connection that runs statements with `?` for each value, for one thread at a time."""

    @property
    def dialect(self) -> str:
        """Return the dialect: sqlite, postgresql, mysql or mariadb."""
        ...

    @property
    def most_text(self) -> int | None:
        """Return the most characters of a text in a statement; None for any number."""
        ...

    def run(self, text: str, values: Sequence[Any] = ()) -> int:
        """Run a statement, and return the number of changed rows."""
        ...

    def run_each(self, text: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run a statement for each row of values."""
        ...

    def rows(self, text: str, values: Sequence[Any] = ()) -> Sequence[Sequence[Any]]:
        """Return all rows of a statement."""
        ...

    def value(self, text: str, values: Sequence[Any] = ()) -> Any:
        """Return the first column of a statement's first row, or None."""
        ...

    def define(self, text: str) -> None:
        """Run a statement that creates or changes tables."""
        ...

    def has_table(self, name: str) -> bool:
        """Return whether the database has a table of that name."""
        ...

    def transaction(self, work: Callable[[SQLConnection], T]) -> T:
        """Run `work` in a transaction: completely or not at all.

        After a conflict with another transaction, `work` may run again.
        """
        ...


class SQLDatabase(Protocol):
    """Runs work on connections. A failure is `StoreUnavailable` or another `StoreError`."""

    def read(self, work: Callable[[SQLConnection], T]) -> T:
        """Run `work` outside of a transaction: each statement sees one consistent state."""
        ...

    def alone(self, work: Callable[[SQLConnection], T]) -> T:
        """Run `work`, each statement of which is its own transaction.

        On SQLite no other thread of this process writes meanwhile.
        """
        ...

    def write(self, work: Callable[[SQLConnection], T]) -> T:
        """Run `work` in one transaction."""
        ...

    def patiently(self, work: Callable[[SQLConnection], None]) -> None:
        """Run long `work` in one transaction, excluding such work of other processes.

        If the database has no transactions for changes of tables, these are applied one by one.
        """
        ...

    def secure_erase(self) -> None:
        """Erase traces of deleted data, as far as the database allows."""
        ...

    def sync(self) -> None:
        """Wait until every acknowledged write survives a power loss."""
        ...

    def close(self) -> None:
        """Close the connections. Idempotent."""
        ...
