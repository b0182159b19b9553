"""Connections to a server."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from agent_memory.errors import StoreError, StoreUnavailable
from agent_memory.stores.sql.database import SQLConnection
from agent_memory.stores.sql.driver import ConnectionLost, Driver, InTheWay, Parameters

T = TypeVar("T")

_LONGEST = 10.0
"""Seconds for which a statement or transaction is retried after conflicts."""
_LONGEST_PAUSE = 0.2

_UNSURE = (
    "{} It happened during a write, which may have succeeded. Read the session before you "
    "retry the write."
)


class ServerConnection:
    """One connection, for one thread at a time. Each statement is a transaction of its own.

    Args:
        raw: The driver's connection, in autocommit mode.
        driver: The driver.
    """

    def __init__(self, raw: Any, driver: Driver) -> None:
        self._raw = raw
        self._driver = driver
        self._in_transaction = False
        self.dialect = driver.dialect(raw)
        self.most_text = driver.most_text(raw)

    def run(self, text: str, values: Sequence[Any] = ()) -> int:
        """Run a statement, and return the number of changed rows."""
        marked = _marked(text)
        return self._write(lambda: self._driver.change(self._raw, marked, values))

    def run_each(self, text: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run a statement for each row of values."""
        if rows:
            marked = _marked(text)
            self._write(lambda: self._driver.change_each(self._raw, marked, rows))

    def rows(self, text: str, values: Sequence[Any] = ()) -> Sequence[Sequence[Any]]:
        """Return all rows of a statement."""
        return self._fetch(_marked(text), values)

    def value(self, text: str, values: Sequence[Any] = ()) -> Any:
        """Return the first column of a statement's first row, or None."""
        rows = self._fetch(_marked(text) if values else text, values)
        return rows[0][0] if rows else None

    def define(self, text: str) -> None:
        """Run a statement that creates or changes tables."""
        self._write(lambda: self._driver.define(self._raw, text))

    def has_table(self, name: str) -> bool:
        """Return whether the database has a table of that name."""
        return bool(self._fetch(self._driver.find_table, [name]))

    def transaction(self, work: Callable[[SQLConnection], T]) -> T:
        """Run `work` in a transaction: completely or not at all.

        After a conflict with another transaction, it is retried for a limited time.
        """
        return _retried(lambda: self._once(work))

    def _once(self, work: Callable[[SQLConnection], T]) -> T:
        self._fetch("BEGIN", ())
        self._in_transaction = True
        try:
            result = work(self)
        except BaseException:
            self._roll_back()
            raise
        finally:
            self._in_transaction = False
        self._commit()
        return result

    def _commit(self) -> None:
        try:
            self._fetch("COMMIT", ())
            return
        except ConnectionLost as lost:
            text = _UNSURE.format(lost)
        raise StoreUnavailable(text)

    def _roll_back(self) -> None:
        try:
            self._fetch("ROLLBACK", ())
        except (
            ConnectionLost,
            StoreError,
        ):  # the connection is unusable, and the server rolls back itself
            return

    def _fetch(self, text: str, parameters: Parameters) -> Sequence[Any]:
        return self._translated(lambda: self._driver.fetch(self._raw, text, parameters))

    def _write(self, call: Callable[[], T]) -> T:
        if self._in_transaction:
            return self._translated(call)
        try:
            return _retried(lambda: self._translated(call))
        except ConnectionLost as lost:
            text = _UNSURE.format(lost)
        raise StoreUnavailable(text)

    def _translated(self, call: Callable[[], T]) -> T:
        try:
            return call()
        except self._driver.errors as error:
            failure = self._driver.failure(self._raw, error)
        raise failure  # not chained: the driver's error may repeat the written data


def _marked(text: str) -> str:
    """Replace `?` by the drivers' placeholder."""
    return text.replace("?", "%s")


def _retried(unit: Callable[[], T]) -> T:
    """Run a statement or transaction until it succeeds without a conflict.

    The retries are limited by time and not by number, because each attempt is slow on a busy
    server.
    """
    started, pause = time.monotonic(), 0.001
    while True:
        try:
            return unit()
        except InTheWay as error:
            reason = str(error)
        if time.monotonic() - started > _LONGEST:
            reason += f" The conflict lasted {_LONGEST:.0f} seconds. Try again later."
            raise StoreUnavailable(reason)
        time.sleep(random.uniform(0, pause))
        pause = min(_LONGEST_PAUSE, 2 * pause)
