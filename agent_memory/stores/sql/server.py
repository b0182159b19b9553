"""A database server as `SQLStore` uses it: a pool of connections, and what to do when one is lost.

The pool is SQLAlchemy's, and all of it that takes part in a call. Statements go to the driver as
text.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from sqlalchemy import event
from sqlalchemy.engine.interfaces import Dialect
from sqlalchemy.exc import DisconnectionError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.pool import PoolProxiedConnection, QueuePool

from agent_memory.core.processes import begin_anew_in_child
from agent_memory.errors import MissingExtra, StoreUnavailable
from agent_memory.stores.base import Durability
from agent_memory.stores.sql.compiling import words
from agent_memory.stores.sql.database import SQLConnection, TableMissing
from agent_memory.stores.sql.driver import ConnectionLost, Driver, something_to_read
from agent_memory.stores.sql.migrations import is_current
from agent_memory.stores.sql.server_connection import ServerConnection

T = TypeVar("T")

_MOST_IDLE = 8
_MOST_CONNECTIONS = 32
_POOL_SECONDS = 15.0

_of_parents: list[QueuePool] = []
"""Pools that crossed a fork: closing or forgetting their connections would end the parent's."""


class ServerDatabase:
    """A database on a server.

    Args:
        driver: Speaks to the server.

    Raises:
        StoreUnavailable: It cannot be reached, or lets us not in.
        ConfigError: It is not set up for what is asked.
    """

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._closed = False
        self._pool = self._new_pool()
        self._words = words(self._dialect())
        begin_anew_in_child(self, ServerDatabase._begin_anew)

    def _dialect(self) -> Dialect:
        try:
            first = self._pool.connect()
        except ConnectionLost as lost:
            told = str(lost)
        else:
            try:
                return self._driver.dialect(first.dbapi_connection)
            finally:
                first.close()
        raise StoreUnavailable(told)

    def read(self, work: Callable[[SQLConnection], T]) -> T:
        """Run `work` outside of a transaction: each of its statements sees one state.

        Raises:
            StoreUnavailable: The server cannot be used now.
            SchemaTooNew: A newer release has migrated the database meanwhile.
        """
        told = ""
        for _ in range(2):
            try:
                return self._with_connection(work)
            except ConnectionLost as lost:  # nothing was committed by it
                told = str(lost)
                if not lost.again:
                    break
            except TableMissing as missing:
                self._with_connection(is_current)  # which tells of a newer release
                told = f"{missing} Perhaps a newer release of agent-memory is changing the tables."
                break
        raise StoreUnavailable(told)

    def alone(self, work: Callable[[SQLConnection], T]) -> T:
        """Run `work`, each of whose statements is a transaction of its own.

        Raises:
            StoreUnavailable: The server cannot be used now.
        """
        return self.read(work)

    def write(self, work: Callable[[SQLConnection], T]) -> T:
        """Run `work` in one transaction.

        Raises:
            StoreUnavailable: The server cannot be used now.
        """
        return self.read(lambda connection: connection.transaction(work))

    def patiently(self, work: Callable[[SQLConnection], None]) -> None:
        """Run `work`, which may be long, in one transaction while no other process runs such work.

        Where the database has no transactions for changes of tables, these are done one by one.

        Raises:
            StoreUnavailable: The server cannot be used now.
        """
        try:
            raw = self._driver.connect(patient=True)
            try:
                self._patiently(ServerConnection(raw, self._driver, self._words), work)
            finally:
                raw.close()
            return
        except ConnectionLost as lost:
            told = str(lost)
        raise StoreUnavailable(told)

    def _patiently(
        self, connection: ServerConnection, work: Callable[[SQLConnection], None]
    ) -> None:
        if connection.value(self._driver.hold_tables) == 0:
            raise StoreUnavailable(
                "Another process has been changing the tables of the store for a minute. Open it "
                "again when that is done."
            )
        connection.transaction(work)

    def secure_erase(self) -> None:
        """Nothing: a server erases deleted rows when it vacuums or purges, by its own schedule."""

    def close(self) -> None:
        """Close the connections. Idempotent."""
        self._closed = True
        self._pool.dispose()

    def _with_connection(self, work: Callable[[SQLConnection], T]) -> T:
        held = self._taken()
        raw = held.dbapi_connection
        try:
            return work(ServerConnection(raw, self._driver, self._words))
        finally:
            if not self._driver.usable(raw):
                held.invalidate()
            held.close()
            if self._closed:  # closed meanwhile: what was just given back would stay open
                self._pool.dispose()

    def _taken(self) -> PoolProxiedConnection:
        if self._closed:
            raise StoreUnavailable("The store was closed. Open a new one.")
        try:
            return self._pool.connect()
        except PoolTimeout:
            pass
        raise StoreUnavailable(
            f"All {_MOST_CONNECTIONS} connections of the store have been busy for "
            f"{_POOL_SECONDS:.0f} seconds. Its server is too slow for so many threads."
        )

    def _new_pool(self) -> QueuePool:
        pool = QueuePool(
            lambda: self._driver.connect(),
            pool_size=_MOST_IDLE,
            max_overflow=_MOST_CONNECTIONS - _MOST_IDLE,
            timeout=_POOL_SECONDS,
            reset_on_return=None,  # transactions end where they began; it would cost a round trip
            use_lifo=True,
        )
        event.listen(pool, "checkout", self._check)
        return pool

    def _check(self, raw: Any, *_: object) -> None:
        """Replace a connection that its server closed, before anything is entrusted to it."""
        if something_to_read(self._driver.socket(raw)):
            raise DisconnectionError

    def _begin_anew(self) -> None:
        _of_parents.append(self._pool)
        self._pool = self._new_pool()


def open_server(url: str, durability: Durability) -> ServerDatabase:
    """The database that the URL of a PostgreSQL or MySQL server names.

    Raises:
        StoreUnavailable: It cannot be reached, or lets us not in.
        ConfigError: The URL cannot be read, or the server is not set up for what is asked.
        MissingExtra: The driver is not installed.
    """
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
    except ImportError as error:  # psycopg's own, where it finds no libpq, names no module
        raise MissingExtra(f"{scheme}://", extra) from error
    return ServerDatabase(driver)
