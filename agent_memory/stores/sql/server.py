"""A database server as `SQLStore` uses it: its connections, and what to do when one is lost.

Statements go to the driver as text; SQLAlchemy is not imported, which takes a quarter of a second.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from agent_memory.core.processes import begin_anew_in_child
from agent_memory.errors import MissingExtra, StoreUnavailable
from agent_memory.stores.base import Durability
from agent_memory.stores.sql.compiled import Words
from agent_memory.stores.sql.database import SQLConnection, TableMissing
from agent_memory.stores.sql.driver import ConnectionLost, Driver, something_to_read
from agent_memory.stores.sql.migrations import is_current
from agent_memory.stores.sql.places import Place, Places
from agent_memory.stores.sql.server_connection import ServerConnection

T = TypeVar("T")

_MOST_IDLE = 8
_MOST_CONNECTIONS = 32
_WAIT_SECONDS = 15.0

_of_parents: list[Places[Any]] = []
"""What crossed a fork: closing or forgetting their connections would end the parent's."""


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
        self._places = self._new_places()
        self._words = self._spoken()
        begin_anew_in_child(self, ServerDatabase._begin_anew)

    def _spoken(self) -> Words:
        try:
            return self._with_raw(self._driver.words)
        except ConnectionLost as lost:
            told = str(lost)
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
        self._places.clear()

    def _with_connection(self, work: Callable[[SQLConnection], T]) -> T:
        return self._with_raw(lambda raw: work(ServerConnection(raw, self._driver, self._words)))

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
            if self._closed:  # closed meanwhile: what was just given back would stay open
                places.clear()

    def _ready(self, place: Place[Any]) -> Any:
        """The connection of a place; another one where its server has closed it."""
        if self._closed:
            raise StoreUnavailable("The store was closed. Open a new one.")
        raw = place.connection
        if raw is not None and something_to_read(self._driver.socket(raw)):
            place.clear()
        place.connection = place.connection or self._driver.connect()
        return place.connection

    def _new_places(self) -> Places[Any]:
        # what broke may be closed already
        return Places(_MOST_CONNECTIONS, _MOST_IDLE, self._driver.errors)

    def _begin_anew(self) -> None:
        _of_parents.append(self._places)
        self._places = self._new_places()


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
