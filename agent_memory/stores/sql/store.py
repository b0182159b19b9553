"""`SQLStore`: all data in an SQL database, in two tables. `MemoryStore`: the same in memory."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from agent_memory.core.processes import fork_safe_lock
from agent_memory.errors import MissingExtra, StoreError, StoreUnavailable
from agent_memory.stores.base import Durability
from agent_memory.stores.kernel.rules import WITHIN_HANDLER
from agent_memory.stores.kernel.vectors import KernelStore
from agent_memory.stores.sql.database import SQLDatabase
from agent_memory.stores.sql.kernel import SQLKernel
from agent_memory.stores.sql.migrations import is_current, migrate
from agent_memory.stores.sql.sqlite import Database
from agent_memory.stores.sql.sqlite_file import Connection

if TYPE_CHECKING:
    from agent_memory.stores.sql.server import Driver, ServerDatabase

T = TypeVar("T")


class SQLStore(KernelStore):
    """A store in an SQL database.

    Args:
        url: `sqlite:///path.db`, `postgresql://user:password@host/database` or
            `mysql://user:password@host/database` (also for MariaDB).
        namespace: The namespace. Stores of different namespaces are independent.
        durability: See `Durability`.

    Raises:
        StoreUnavailable: The database cannot be opened.
        ConfigError: The URL is invalid, or a required setting of the server is missing.
        MissingExtra: The driver is not installed.
        SchemaTooNew: A newer release wrote the database.
    """

    def __init__(
        self, url: str, namespace: str = "default", durability: Durability | None = None
    ) -> None:
        self._database: SQLDatabase
        if url.startswith("sqlite:"):
            self._database = Database(url.removeprefix("sqlite:///"), durability)
        else:
            self._database = open_server(url, durability)
        try:
            if not self._database.read(is_current):
                self._database.write(migrate)
            super().__init__(SQLKernel(self._database, namespace))
        except BaseException:
            self._database.close()
            raise


def open_server(url: str, durability: Durability | None) -> ServerDatabase:
    from agent_memory.stores.sql.server import ServerDatabase

    scheme = url.partition("://")[0]
    extra = "postgres" if scheme.startswith("postgres") else "mysql"
    driver: Driver
    try:
        if extra == "postgres":
            from agent_memory.stores.sql.postgres import PostgresDriver

            driver = PostgresDriver(url, durability)
        else:
            from agent_memory.stores.sql.mysql import MySQLDriver

            driver = MySQLDriver(url, durability)
    except ImportError as error:  # also psycopg's error about a missing libpq
        raise MissingExtra(f"{scheme}://", extra) from error
    return ServerDatabase(driver)


class MemoryDatabase(SQLDatabase):
    """A SQLite database in memory, with one connection. The data exists as long as the object."""

    def __init__(self) -> None:
        self._lock = fork_safe_lock(own=True)
        self._is_writing = False
        self._raw = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self._connection = Connection(self._raw)
        self.write(migrate)

    def read(self, work: Callable[[Connection], T]) -> T:
        with self._lock:
            try:
                return work(self._connection)
            except sqlite3.Error as error:
                raise StoreError(f"The SQLite database in memory failed: {error}.") from error

    def alone(self, work: Callable[[Connection], T], *, synced: bool = True) -> T:
        with self._lock:
            if self._is_writing:
                raise StoreUnavailable(WITHIN_HANDLER)
            self._is_writing = True
            try:
                return self.read(work)
            finally:
                self._raw.rollback()  # a signal may have interrupted the end of a transaction
                self._is_writing = False

    def __del__(self) -> None:
        self._raw.close()


class MemoryStore(KernelStore):
    """A store for tests and trials. `close` does nothing: the data exists as long as the object.

    Args:
        namespace: Ignored, because instances share no data.
    """

    def __init__(self, namespace: str = "default") -> None:
        super().__init__(SQLKernel(MemoryDatabase(), namespace))
