"""A database server for `SQLKernel`: its connections, and the reaction to a lost one.

Statements go to the driver as text. SQLAlchemy is not imported, because that takes a quarter of a
second.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from agent_memory.core.processes import begin_anew_in_child
from agent_memory.errors import MissingExtra, StoreUnavailable
from agent_memory.stores.base import Durability
from agent_memory.stores.sql.database import SQLConnection, TableMissing
from agent_memory.stores.sql.driver import ConnectionLost, Driver, something_to_read
from agent_memory.stores.sql.migrations import is_current
from agent_memory.stores.sql.places import Place, Places
from agent_memory.stores.sql.server_connection import ServerConnection

T = TypeVar("T")

_MOST_IDLE = 8
_MOST_CONNECTIONS = 32
_WAIT_SECONDS = 15.0

_inherited_pools: list[Places[Any]] = []
"""Pools from before a fork. They are never closed or freed: that would end the parent's
connections."""


class ServerDatabase:
    """A database on a server.

    Args:
        driver: The driver of the server.

    Raises:
        StoreUnavailable: The server cannot be reached, or refuses the connection.
        ConfigError: A required setting of the server is missing.
    """

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._closed = False
        self._places = self._new_places()
        begin_anew_in_child(self, ServerDatabase._reset_in_child)

    def read(self, work: Callable[[SQLConnection], T]) -> T:
        """Run `work` outside of a transaction: each statement sees one consistent state.

        Raises:
            StoreUnavailable: The server cannot be used now.
            SchemaTooNew: A newer release has migrated the database meanwhile.
        """
        reason = ""
        for _ in range(2):
            try:
                return self._with_connection(work)
            except ConnectionLost as lost:  # a write that may have succeeded is StoreUnavailable
                reason = str(lost)
                if not lost.again:
                    break
            except TableMissing as missing:
                self._with_connection(is_current)  # raises an error for a newer release
                reason = f"{missing} A newer release of agent-memory may be migrating the tables."
                break
        raise StoreUnavailable(reason)

    def alone(self, work: Callable[[SQLConnection], T]) -> T:
        """Run `work`, each statement of which is its own transaction.

        A server accepts concurrent writers, so this is the same as `read`.

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
        """Run long `work` in one transaction, while no other process runs such work.

        A database that cannot change tables in a transaction applies these changes one by one.

        Raises:
            StoreUnavailable: The server cannot be used now.
        """
        try:
            raw = self._driver.connect(patient=True)
            try:
                self._patiently(ServerConnection(raw, self._driver), work)
            finally:
                raw.close()
            return
        except ConnectionLost as lost:
            reason = str(lost)
        raise StoreUnavailable(reason)

    def _patiently(
        self, connection: ServerConnection, work: Callable[[SQLConnection], None]
    ) -> None:
        if connection.value(self._driver.hold_tables) == 0:
            raise StoreUnavailable(
                "Another process has been changing the tables of the store for a minute. Open "
                "the store again later."
            )
        connection.transaction(work)

    def secure_erase(self) -> None:
        """Do nothing: a server erases deleted rows by its own schedule, when it vacuums or
        purges."""

    def sync(self) -> None:
        """Do nothing: a server syncs by its settings."""

    def close(self) -> None:
        """Close the connections. Idempotent."""
        self._closed = True
        self._places.clear()

    def _with_connection(self, work: Callable[[SQLConnection], T]) -> T:
        return self._with_raw(lambda raw: work(ServerConnection(raw, self._driver)))

    def _with_raw(self, work: Callable[[Any], T]) -> T:
        places = self._places
        place = places.awaited(_WAIT_SECONDS)
        if place is None:
            raise StoreUnavailable(
                f"All {_MOST_CONNECTIONS} connections of the store have been busy for "
                f"{_WAIT_SECONDS:.0f} seconds. Its server is too slow for so many threads."
            )
        try:
            with place.lock:
                raw = self._ready(place)
                try:
                    return work(raw)
                finally:
                    if not place.keeps or not self._driver.usable(raw):
                        place.clear()
        finally:
            places.tell()
            if self._closed:  # closed meanwhile: the released connection would stay open
                places.clear()

    def _ready(self, place: Place[Any]) -> Any:
        """Return the connection of a place, or a new one if its server has closed it."""
        if self._closed:
            raise StoreUnavailable("The store was closed. Open a new one.")
        raw = place.connection
        if raw is not None and something_to_read(self._driver.socket(raw)):
            place.clear()
        place.connection = place.connection or self._driver.connect()
        return place.connection

    def _new_places(self) -> Places[Any]:
        # These errors are ignored on closing: a broken connection may be closed already.
        return Places(_MOST_CONNECTIONS, _MOST_IDLE, self._driver.errors)

    def _reset_in_child(self) -> None:
        _inherited_pools.append(self._places)
        self._places = self._new_places()


def open_server(url: str, durability: Durability | None) -> ServerDatabase:
    """Open the database of a PostgreSQL or MySQL URL.

    Raises:
        StoreUnavailable: The server cannot be reached, or refuses the connection.
        ConfigError: The URL is invalid, or a required setting of the server is missing.
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
    except ImportError as error:  # psycopg's own error about a missing libpq names no module
        raise MissingExtra(f"{scheme}://", extra) from error
    return ServerDatabase(driver)
