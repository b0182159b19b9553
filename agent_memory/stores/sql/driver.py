"""The protocol of a driver for `server`; `postgres` and `mysql` implement it."""

from __future__ import annotations

import select
from collections.abc import Sequence
from typing import Any, Protocol

CONNECT_SECONDS = 5
CALL_SECONDS = 20
"""Seconds after which a server counts as unreachable."""

PATIENT_SECONDS = 600
"""The same limit for long work such as a migration."""

LOCK_SECONDS = 10
"""Seconds that a statement waits for another writer."""

Parameters = Sequence[Any]


class ConnectionLost(Exception):
    """The connection broke. Uncommitted changes are lost.

    Attributes:
        again: Whether a retry on another connection may succeed.
    """

    def __init__(self, text: str, *, again: bool = True) -> None:
        super().__init__(text)
        self.again = again


class InTheWay(Exception):
    """A conflict with another transaction. A retry may succeed after it ends."""


class Driver(Protocol):
    """A driver of one server. Its connections commit each statement separately.

    Attributes:
        errors: The base class of the driver's errors.
        find_table: The query that finds a table by its name.
        hold_tables: The query that waits until no other process changes tables. The lock ends with
            the connection. Its result is 0 after a timeout.
    """

    @property
    def errors(self) -> type[Exception]: ...

    @property
    def find_table(self) -> str: ...

    @property
    def hold_tables(self) -> str: ...

    def connect(self, *, patient: bool = False) -> Any:
        """Return a new connection; with `patient`, one for long calls.

        Raises:
            StoreUnavailable: The server cannot be reached, or refuses the connection.
            ConfigError: A required setting is missing.
        """
        ...

    def dialect(self, raw: Any) -> str:
        """Return the dialect of a connection's server: postgresql, mysql or mariadb."""
        ...

    def most_text(self, raw: Any) -> int | None:
        """Return the most characters of a text in a statement; None for any number."""
        ...

    def socket(self, raw: Any) -> int:
        """Return the file descriptor of a connection."""
        ...

    def usable(self, raw: Any) -> bool:
        """Return whether an idle connection is open and in no transaction."""
        ...

    def change(self, raw: Any, text: str, parameters: Parameters) -> int:
        """Run a statement, and return the number of changed rows."""
        ...

    def change_each(self, raw: Any, text: str, rows: Sequence[Parameters]) -> None:
        """Run a statement for each row of parameters."""
        ...

    def fetch(self, raw: Any, text: str, parameters: Parameters) -> Sequence[Any]:
        """Run a statement, and return its rows, if any."""
        ...

    def define(self, raw: Any, text: str) -> None:
        """Run a statement that creates or changes a table.

        If such statements are not part of a transaction, existing objects are ignored, because an
        earlier run may have been interrupted.
        """
        ...

    def failure(self, raw: Any, error: Exception) -> Exception:
        """Translate an error of the driver: a lost connection, a conflict, or a `StoreError`.

        The result contains none of the written data.
        """
        ...


def something_to_read(descriptor: int) -> bool:
    """Return whether an idle connection has input, such as the server's end of the connection."""
    if not hasattr(select, "poll"):  # Windows
        return bool(select.select([descriptor], [], [], 0)[0])
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))
