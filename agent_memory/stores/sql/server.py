"""Database servers for `SQLKernel`: drivers, connections, and retries after failures."""

from __future__ import annotations

import random
import select
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from agent_memory.core.processes import begin_anew_in_child
from agent_memory.errors import StoreError, StoreUnavailable
from agent_memory.stores.base import UNSURE
from agent_memory.stores.sql.database import Place, Places, SQLConnection, SQLDatabase, TableMissing
from agent_memory.stores.sql.migrations import is_current

T = TypeVar("T")

CONNECT_SECONDS = 5
CALL_SECONDS = 20  # a server without an answer after this time counts as unreachable
LOCK_SECONDS = 10  # the longest wait of a statement for another writer

GRANT = (
    "Grant it to the user of the setting `store`, or let another user open the store once to "
    "create its tables."
)
_MOST_IDLE = 8
_MOST_CONNECTIONS = 32
_WAIT_SECONDS = 15.0
_CONFLICT_SECONDS = 10.0
_LONGEST_PAUSE = 0.2

_inherited_pools: list[Places[Any]] = []
"""Pools from before a fork. Closing or freeing them would end the parent's connections."""


class ConnectionLost(Exception):
    """The connection broke. Uncommitted changes are lost. With `again`, a retry may succeed."""

    def __init__(self, text: str, *, again: bool = True) -> None:
        super().__init__(text)
        self.again = again


class InTheWay(Exception):
    """A conflict with another transaction. A retry may succeed after that transaction ends."""


class ServerFull(InTheWay):
    """The server permits no further connection now."""


class Driver(ABC):
    """A driver of one server. Its connections commit each statement separately.

    A connection also has `dialect` and `most_text`, as in `SQLConnection`, and `is_usable`: whether
    an idle connection is open and in no transaction.
    """

    errors: type[Exception]  # the base class of the driver's errors
    find_table: str  # the query that finds a table by its name

    def connect(self) -> Any:
        """Return a new connection."""
        raw = self.open()
        try:
            self.set_up(raw)
        except self.errors as error:
            failure = self.failure(raw, error)
            raw.close()
        except BaseException:
            raw.close()
            raise
        else:
            return raw
        raise failure

    @abstractmethod
    def open(self) -> Any:
        """Return a new connection with the driver's defaults, or raise `ServerFull`."""

    @abstractmethod
    def set_up(self, raw: Any) -> None:
        """Apply the settings and time limits of a new connection."""

    def cursor(self, raw: Any, *, has_values: bool) -> Any:
        """Return a cursor of a connection for a statement, as a context manager."""
        return raw.cursor()

    def ignores(self, error: Exception) -> bool:
        """Return whether an error of `define` only says that the change was already made.

        Such errors occur on servers that change tables outside of transactions.
        """
        return False

    @abstractmethod
    def failure(self, raw: Any, error: Exception) -> Exception:
        """Translate an error of the driver: a lost connection, a conflict, or a `StoreError`.

        The result contains none of the written data.
        """


class ServerConnection(SQLConnection):
    def __init__(self, raw: Any, driver: Driver) -> None:
        self._raw = raw
        self._driver = driver
        self._in_transaction = False
        self.dialect = raw.dialect
        self.most_text = raw.most_text

    def run(self, text: str, values: Sequence[Any] = ()) -> int:
        return self._write(lambda: self._executed(_marked(text), values))[0]

    def run_each(self, text: str, rows: Sequence[Sequence[Any]]) -> None:
        if len(rows) == 1:  # `executemany` may need one more round trip
            self.run(text, rows[0])
        elif rows:
            self._write(lambda: self._executed(_marked(text), rows, each=True))

    def rows(self, text: str, values: Sequence[Any] = ()) -> Sequence[Sequence[Any]]:
        return self._fetch(_marked(text), values)

    def define(self, text: str) -> None:
        def define() -> None:
            try:
                self._executed(text, ())
            except self._driver.errors as error:
                if not self._driver.ignores(error):
                    raise

        self._write(define)

    def has_table(self, name: str) -> bool:
        return bool(self._fetch(self._driver.find_table, [name]))

    def transaction(self, work: Callable[[SQLConnection], T]) -> T:
        return _retried(lambda: self._attempt(work))

    def _attempt(self, work: Callable[[SQLConnection], T]) -> T:
        self._fetch("BEGIN", ())
        self._in_transaction = True
        try:
            result = work(self)
        except BaseException:
            with suppress(ConnectionLost, StoreError):  # the server rolls back by itself
                self._fetch("ROLLBACK", ())
            raise
        finally:
            self._in_transaction = False
        _committed(lambda: self._fetch("COMMIT", ()))
        return result

    def _executed(
        self, text: str, values: Sequence[Any], *, each: bool = False
    ) -> tuple[int, Sequence[Any]]:
        """Run a statement, once or for each row of values. Return the row count and the rows."""
        with self._driver.cursor(self._raw, has_values=bool(values)) as cursor:
            if each:
                cursor.executemany(text, values)
            else:
                cursor.execute(text, values or None)
            return cursor.rowcount, cursor.fetchall() if cursor.description else ()

    def _fetch(self, text: str, values: Sequence[Any]) -> Sequence[Any]:
        return self._translated(lambda: self._executed(text, values))[1]

    def _write(self, call: Callable[[], T]) -> T:
        if self._in_transaction:
            return self._translated(call)
        return _committed(lambda: _retried(lambda: self._translated(call)))

    def _translated(self, call: Callable[[], T]) -> T:
        try:
            return call()
        except self._driver.errors as error:
            failure = self._driver.failure(self._raw, error)
        raise failure  # not chained: the driver's error may repeat the written data


class ServerDatabase(SQLDatabase):
    remote = True

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._closed = False
        self._places = self._new_places()
        begin_anew_in_child(self, ServerDatabase._reset_in_child)

    def read(self, work: Callable[[SQLConnection], T]) -> T:
        reason = ""
        for _ in range(2):
            try:
                return self._with_connection(work)
            except ConnectionLost as lost:  # no write has succeeded; see `_committed`
                reason = str(lost)
                if not lost.again:
                    break
            except TableMissing as missing:
                self._with_connection(is_current)  # raises an error for a newer release
                reason = f"{missing} A newer release of agent-memory may be migrating the tables."
                break
        raise StoreUnavailable(reason)

    def alone(self, work: Callable[[SQLConnection], T], *, synced: bool = True) -> T:
        return self.read(work)  # a server accepts concurrent writers

    def close(self) -> None:
        self._closed = True
        self._places.clear()

    def _with_connection(self, work: Callable[[SQLConnection], T]) -> T:
        return _retried(lambda: self._on_a_place(work))

    def _on_a_place(self, work: Callable[[SQLConnection], T]) -> T:
        places = self._places
        place = places.awaited(_WAIT_SECONDS)
        if place is None:
            raise StoreUnavailable(
                f"All connections of the store have been busy for {_WAIT_SECONDS:.0f} seconds. The "
                "server is too slow, or permits too few connections, for so many threads."
            )
        is_broken = False
        try:
            with place.lock:
                raw = self._ready(place)
                try:
                    return work(ServerConnection(raw, self._driver))
                finally:
                    is_broken = not raw.is_usable
                    if is_broken or not place.keeps:
                        place.clear()
        finally:
            places.notify()
            # the other connections may be to the same lost or read-only server. If the store was
            # closed meanwhile, the released connection would stay open
            if is_broken or self._closed:
                places.clear()

    def _ready(self, place: Place[Any]) -> Any:
        """Return a place's connection. If it is missing or the server closed it, open a new one."""
        if self._closed:
            raise StoreUnavailable("The store was closed. Open a new one.")
        raw = place.connection
        if raw is not None and _something_to_read(raw.fileno()):
            place.clear()
        try:
            place.connection = place.connection or self._driver.connect()
        except ServerFull:
            self._places.wait_before_opening()
            raise
        return place.connection

    def _new_places(self) -> Places[Any]:
        # errors of closing are ignored, because a broken connection may be closed already
        return Places(_MOST_CONNECTIONS, _MOST_IDLE, self._driver.errors)

    def _reset_in_child(self) -> None:
        _inherited_pools.append(self._places)
        self._places = self._new_places()


def _marked(text: str) -> str:
    return text.replace("?", "%s")


def _committed(call: Callable[[], T]) -> T:
    """Run a call that commits. If the connection breaks, say that the write may have succeeded."""
    try:
        return call()
    except ConnectionLost as lost:
        text = UNSURE.format(lost)
    raise StoreUnavailable(text)


def _retried(unit: Callable[[], T]) -> T:
    """Run a statement or transaction. Repeat it after conflicts, for `_CONFLICT_SECONDS`."""
    started, pause = time.monotonic(), 0.001
    while True:
        try:
            return unit()
        except InTheWay as error:
            reason = str(error)
        if time.monotonic() - started > _CONFLICT_SECONDS:
            reason += f" The conflict lasted {_CONFLICT_SECONDS:.0f} seconds. Try again later."
            raise StoreUnavailable(reason)
        time.sleep(random.uniform(0, pause))
        pause = min(_LONGEST_PAUSE, 2 * pause)


def _something_to_read(descriptor: int) -> bool:
    """Return whether an idle connection has input, such as a notice that the server closed it."""
    if not hasattr(select, "poll"):  # Windows
        return bool(select.select([descriptor], [], [], 0)[0])
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))
