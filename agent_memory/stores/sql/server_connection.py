"""A connection to a server that runs the named statements."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from agent_memory.errors import StoreError, StoreUnavailable
from agent_memory.stores.sql.compiled import Words
from agent_memory.stores.sql.database import SQLConnection
from agent_memory.stores.sql.driver import ConnectionLost, Driver, InTheWay, Parameters

T = TypeVar("T")

_LONGEST = 10.0
"""Seconds that a statement or transaction is tried again where others are in its way."""
_LONGEST_PAUSE = 0.2
_WOKEN_AT_ONCE = 500

_UNSURE = (
    "{} That was while it wrote, so whether it did is not known: look at the session before you "
    "write the same again."
)


class ServerConnection:
    """One connection, for one thread at a time; each statement is a transaction of its own.

    Args:
        raw: The driver's, in autocommit mode.
        driver: The driver.
        words: Tables and statements in the server's words.
    """

    def __init__(self, raw: Any, driver: Driver, words: Words) -> None:
        self._raw = raw
        self._driver = driver
        self._statements = words.statements
        self._within = False
        self.dialect = words.dialect
        self.most_text = driver.most_text(raw)
        self.schema = words.schema

    def run(self, name: str, values: Mapping[str, Any]) -> int:
        """Run a statement; how many rows it changed."""
        text, parameters = self._statements[name].filled(values)
        return self._write(lambda: self._driver.change(self._raw, text, parameters))

    def run_each(self, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Run a statement for each of many rows of values."""
        statement = self._statements[name]
        filled = [statement.filled(row)[1] for row in rows]
        if filled:
            self._write(lambda: self._driver.change_each(self._raw, statement.text, filled))

    def rows(self, name: str, values: Mapping[str, Any]) -> list[Any]:
        """All rows that a statement returns, with named columns."""
        statement = self._statements[name]
        return list(map(statement.row, self._fetch(*statement.filled(values))))

    def row(self, name: str, values: Mapping[str, Any]) -> Any:
        """The one row that a statement returns, or None."""
        found = self.rows(name, values)
        return found[0] if found else None

    def value(self, text: str) -> Any:
        """Run a statement given as text; the first column of its first row, or None."""
        found = self._fetch(text, ())
        return found[0][0] if found else None

    def define(self, text: str) -> None:
        """Run a statement, given as text, that makes or changes tables."""
        self._write(lambda: self._driver.define(self._raw, text))

    def has_table(self, name: str) -> bool:
        """Whether the database has a table of that name."""
        return bool(self._fetch(self._driver.find_table, [name]))

    def lock(self, values: Mapping[str, Any]) -> bool:
        """Keep other writers away from a session for the rest of the transaction.

        False where there is none. A statement sees what was committed when it began, which may be
        before it waited for this lock: so what is to be up to date is read by a later one.
        """
        return bool(self.rows("lock", values))

    def schedule_all(self, values: Mapping[str, Any]) -> None:
        """Make all sessions of a namespace due, some at a time: nobody waits for a million rows."""
        page = {**values, "after": 0, "most": _WOKEN_AT_ONCE}
        while keys := [row.key for row in self.rows("asleep", page)]:
            self.run("wake_some", {**values, "keys": keys})
            page["after"] = keys[-1]

    def transaction(self, work: Callable[[SQLConnection], T]) -> T:
        """Run `work` in a transaction: all of it is done, or nothing.

        Where another transaction was in its way, it runs again, for a bounded time.
        """
        return _again(lambda: self._once(work))

    def _once(self, work: Callable[[SQLConnection], T]) -> T:
        self._fetch("BEGIN", ())
        self._within = True
        try:
            result = work(self)
        except BaseException:
            self._roll_back()
            raise
        finally:
            self._within = False
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
        except (ConnectionLost, StoreError):  # it cannot be used, and the server rolls back itself
            return

    def _fetch(self, text: str, parameters: Parameters) -> Sequence[Any]:
        return self._tried(lambda: self._driver.fetch(self._raw, text, parameters))

    def _write(self, call: Callable[[], T]) -> T:
        if self._within:
            return self._tried(call)
        try:
            return _again(lambda: self._tried(call))
        except ConnectionLost as lost:
            text = _UNSURE.format(lost)
        raise StoreUnavailable(text)

    def _tried(self, call: Callable[[], T]) -> T:
        try:
            return call()
        except self._driver.errors as error:
            failure = self._driver.failure(self._raw, error)
        raise failure  # not from the driver's, which may tell what was written


def _again(unit: Callable[[], T]) -> T:
    """Run a statement or transaction until nothing is in its way.

    Time is the bound and not a number of attempts: on a busy server each attempt is slow too.
    """
    begun, pause = time.monotonic(), 0.001
    while True:
        try:
            return unit()
        except InTheWay as error:
            told = str(error)
        if time.monotonic() - begun > _LONGEST:
            told += f" That was so for {_LONGEST:.0f} seconds. Try again later."
            raise StoreUnavailable(told)
        time.sleep(random.uniform(0, pause))
        pause = min(_LONGEST_PAUSE, 2 * pause)
