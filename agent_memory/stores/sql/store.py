"""`SQLStore`: all data in an SQL database, in two tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_memory.errors import MissingExtra
from agent_memory.stores.base import Durability
from agent_memory.stores.kernel.vectors import KernelStore
from agent_memory.stores.sql.database import SQLDatabase
from agent_memory.stores.sql.kernel import SQLKernel
from agent_memory.stores.sql.migrations import is_current, migrate
from agent_memory.stores.sql.sqlite import Database

if TYPE_CHECKING:
    from agent_memory.stores.sql.server import Driver, ServerDatabase


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
