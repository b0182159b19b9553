"""What `server` needs of a driver: see `postgres` and `mysql`."""

from __future__ import annotations

import select
from collections.abc import Sequence
from typing import Any, Protocol

from agent_memory.stores.sql.compiled import Words

CONNECT_SECONDS = 5
CALL_SECONDS = 20
"""Servers that answer no sooner are taken for dead."""

PATIENT_SECONDS = 600
"""The same, for long work such as a migration."""

LOCK_SECONDS = 10
"""How long a statement waits for another writer."""

Parameters = Sequence[Any]


class ConnectionLost(Exception):
    """The connection broke: what was not committed is not there.

    Attributes:
        again: Whether another connection may do better.
    """

    def __init__(self, text: str, *, again: bool = True) -> None:
        super().__init__(text)
        self.again = again


class InTheWay(Exception):
    """Another transaction was in the way; the same may succeed once it is over."""


class Driver(Protocol):
    """Speaks to one server, over connections that commit each statement by itself.

    Attributes:
        errors: Whatever the driver raises.
        find_table: Finds a table by its name.
        hold_tables: Waits until no other process changes tables; over with the connection. Its
            answer is 0 where it waited in vain.
    """

    @property
    def errors(self) -> type[Exception]: ...

    @property
    def find_table(self) -> str: ...

    @property
    def hold_tables(self) -> str: ...

    def connect(self, *, patient: bool = False) -> Any:
        """A new connection; with `patient`, one whose calls may be long.

        Raises:
            StoreUnavailable: The server cannot be reached, or lets us not in.
            ConfigError: It is not set up for what is asked.
        """
        ...

    def words(self, raw: Any) -> Words:
        """Tables and statements in the words of a connection's server."""
        ...

    def most_text(self, raw: Any) -> int | None:
        """How many characters a text of a statement may have; None for any number."""
        ...

    def socket(self, raw: Any) -> int:
        """The file descriptor of a connection."""
        ...

    def usable(self, raw: Any) -> bool:
        """Whether a connection that nobody uses is open, and in no transaction."""
        ...

    def change(self, raw: Any, text: str, parameters: Parameters) -> int:
        """Run a statement; how many rows it changed."""
        ...

    def change_each(self, raw: Any, text: str, rows: Sequence[Parameters]) -> None:
        """Run a statement for each of many rows of parameters."""
        ...

    def fetch(self, raw: Any, text: str, parameters: Parameters) -> Sequence[Any]:
        """Run a statement; the rows it returns, if it returns rows."""
        ...

    def define(self, raw: Any, text: str) -> None:
        """Run a statement that makes or changes a table.

        Where that is no part of a transaction, what was there already is passed over: an earlier
        run may have been cut short.
        """
        ...

    def failure(self, raw: Any, error: Exception) -> Exception:
        """What an error of the driver means: a loss, something in the way, or a `StoreError`.

        No word of what was to be written is in it.
        """
        ...


def something_to_read(descriptor: int) -> bool:
    """Whether a connection that nobody uses was closed by the server, which then has sent that."""
    if not hasattr(select, "poll"):  # Windows
        return bool(select.select([descriptor], [], [], 0)[0])
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))
