"""The interface of a database for `SQLKernel`, and the statements that differ between dialects.

The implementations of the interface in `sqlite` and `server` use the pool of connections below.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from random import Random
from time import monotonic
from typing import Any, Generic, Protocol, TypeVar

from agent_memory.errors import StoreUnavailable
from agent_memory.stores.sql.migrations import table_name

T = TypeVar("T")
_random = Random()  # the global generator belongs to the application
C = TypeVar("C", bound="_Closes")

_FULL_SECONDS = 1.0
_LOOK_SECONDS = 0.1  # the longest time until a waiting thread looks for a free place again


class TableMissing(StoreUnavailable):
    """A table is missing. A newer release may have migrated the database."""


class SQLConnection(Protocol):
    """A connection that runs statements with `?` for each value, for one thread at a time."""

    dialect: str  # sqlite, postgresql, mysql or mariadb
    # the maximum length of a text in a statement, in characters; None for no limit
    most_text: int | None = None

    def run(self, text: str, values: Sequence[Any] = ()) -> int:
        """Run a statement, and return the number of changed rows."""
        raise NotImplementedError

    def run_each(self, text: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run a statement for each row of values."""

    def rows(self, text: str, values: Sequence[Any] = ()) -> Sequence[Sequence[Any]]:
        """Return all rows of a statement."""
        raise NotImplementedError

    def value(self, text: str, values: Sequence[Any] = ()) -> Any:
        """Return the first column of a statement's first row, or None."""
        rows = self.rows(text, values)
        return rows[0][0] if rows else None

    def define(self, text: str) -> None:
        """Run a statement that creates or changes tables."""
        self.run(text)

    def has_table(self, name: str) -> bool:
        raise NotImplementedError

    def transaction(self, work: Callable[[SQLConnection], T]) -> T:
        """Run `work` in a transaction. An error undoes all of its changes.

        After a conflict with another transaction, `work` may run again.
        """
        raise NotImplementedError


class SQLDatabase(Protocol):
    """Runs work on connections. A failure is `StoreUnavailable` or another `StoreError`."""

    remote: bool = False

    def read(self, work: Callable[[SQLConnection], T]) -> T:
        """Run `work` outside of a transaction: each statement sees one consistent state."""
        raise NotImplementedError

    def alone(self, work: Callable[[SQLConnection], T], *, synced: bool = True) -> T:
        """Run `work`. Each of its statements is a separate transaction.

        On SQLite, no other thread of this process writes meanwhile. Without `synced`, a power loss
        may undo the work.
        """
        raise NotImplementedError

    def write(self, work: Callable[[SQLConnection], T]) -> T:
        """Run `work` in one transaction. MySQL commits each change of a table separately."""
        return self.alone(lambda connection: connection.transaction(work))

    def secure_erase(self) -> str | None:
        """Erase traces of deleted data, as far as the database allows.

        If the erasure is unfinished, return the reason.
        """
        return None

    def sync(self) -> None:
        """Wait until every acknowledged write survives a power loss."""
        return

    def close(self) -> None:
        """Close the connections. Idempotent."""
        return


class _Closes(Protocol):
    def close(self) -> object: ...


class Place(Generic[C]):
    """The place of one connection in a pool. With `keeps`, an idle connection stays open."""

    def __init__(self, keeps: bool, errors: tuple[type[Exception], ...] = ()) -> None:
        self.keeps = keeps
        self._errors = errors
        self.lock = threading.Lock()
        self.connection: C | None = None

    def clear(self) -> None:
        """Close the connection. The caller holds the lock."""
        connection, self.connection = self.connection, None
        if connection is not None:
            with suppress(*self._errors):
                connection.close()


class Places(Generic[C]):
    """A pool with a fixed number of places. To use a place's connection, hold the place's lock.

    A signal may raise an exception between any two steps of Python. The pool is therefore always
    valid: locks are held only by `with`, and a connection never leaves its place. `idle` of the
    `most` connections stay open while they are idle. `errors` of closing are ignored.
    """

    def __init__(self, most: int, idle: int, *errors: type[Exception]) -> None:
        self._all: list[Place[C]] = [Place(number < idle, errors) for number in range(most)]
        self._freed: SimpleQueue[None] = SimpleQueue()
        self._awaited: set[int] = set()  # the threads that wait
        self._opens_after = 0.0

    def __iter__(self) -> Iterator[Place[C]]:
        return iter(self._all)

    def free(self) -> Place[C] | None:
        """Return a free place, if possible with an open connection; None if there is none."""
        free = (place for place in self._all if not place.lock.locked())
        first = next(free, None)
        if first is None or first.connection is not None:
            return first
        is_opening = monotonic() > self._opens_after
        return next((place for place in free if place.connection), first if is_opening else None)

    def wait_before_opening(self) -> None:
        """Use only open connections for a moment, because the server accepts no further one."""
        self._opens_after = monotonic() + _FULL_SECONDS

    def any(self) -> Place[C]:
        return self.free() or _random.choice(self._all)

    def awaited(self, seconds: float) -> Place[C] | None:
        """Wait for a free place, and return it; None after `seconds`."""
        if (place := self.free()) is not None:
            return place
        deadline, thread = monotonic() + seconds, threading.get_ident()
        try:
            self._awaited.add(thread)
            while (place := self.free()) is None and (left := deadline - monotonic()) > 0:
                try:
                    self._freed.get(timeout=min(left, _LOOK_SECONDS))
                except Empty:
                    continue
            return place
        finally:
            self._awaited.discard(thread)

    def notify(self) -> None:
        if self._freed.qsize() < len(self._awaited):
            self._freed.put(None)

    def clear(self) -> None:
        """Close idle connections. A busy connection is closed by its thread after use."""
        for place in self._all:
            if not place.lock.locked():
                with place.lock:
                    place.clear()


MESSAGES, DOCUMENTS = table_name("messages"), table_name("documents")

_LINE = "namespace, session, seq, role, text, created_at, tokens, total, encoding, body"
_STATE = "owner, session, first, last, version, about, body, data"
DOCUMENT_VALUES = "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, '', 0)"
INSERT = (
    f"INSERT INTO {DOCUMENTS} (namespace, collection, id, {_STATE}, due, holder, held_until) "
    f"VALUES {DOCUMENT_VALUES}"
)
LINE_VALUES = "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
APPEND = f"INSERT INTO {MESSAGES} ({_LINE}) VALUES {LINE_VALUES}"


@dataclass(frozen=True)
class Dialect:
    """The statements and clauses of one dialect."""

    upsert: str  # inserts a document, or overwrites the document with its id
    # Appends a line if the head has a given version, is due by a given time, and the line's seq is
    # free. The primary key detects a seq that is taken. The head is locked until the line is in the
    # log.
    extend: str
    find: str  # the function that returns the position of a text in another text, or 0
    marked: str  # the expression that joins a parameter, a number and a comma to one text
    # the clause that locks selected rows against changes and locks by other transactions
    lock: str = ""
    share: str = ""  # the clause that locks selected rows against changes by other transactions
    # The clause that names the index for a scan by owner. It is empty if the database's planner
    # chooses this index without the clause.
    by_owner: str = ""


def _extend(insert: str, values: str, after: str) -> str:
    return (
        f"{insert} INTO {MESSAGES} ({_LINE}) SELECT {values} FROM {DOCUMENTS} "
        f"WHERE namespace = ? AND collection = ? AND id = ? AND version = ? AND due <= ?{after}"
    )


def _upsert(clause: str, value: str) -> str:
    return f"{INSERT} {clause} " + ", ".join(
        f"{name} = {value.format(name)}" for name in _STATE.split(", ")
    )


_VALUES = ", ".join("?" * 10)
_CONFLICT = "ON CONFLICT (namespace, collection, id) DO UPDATE SET"
_MYSQL = Dialect(
    _upsert("ON DUPLICATE KEY UPDATE", "VALUES({})"),
    _extend("INSERT IGNORE", _VALUES, " LOCK IN SHARE MODE"),
    "instr",
    "concat(?, {}, ',')",
    lock=" FOR UPDATE",
    share=" LOCK IN SHARE MODE",
)
DIALECTS = {
    "sqlite": Dialect(
        _upsert(_CONFLICT, "excluded.{}"),
        _extend("INSERT OR IGNORE", _VALUES, ""),
        "instr",
        "? || {} || ','",
        by_owner=" INDEXED BY agent_memory_documents_owner",
    ),
    "postgresql": Dialect(
        _upsert(_CONFLICT, "excluded.{}"),
        _extend(
            "INSERT",
            "?, ?, ?::bigint, ?, ?, ?::bigint, ?::bigint, ?::bigint, ?, ?",
            " FOR SHARE ON CONFLICT DO NOTHING",
        ),
        "strpos",
        "?::text || {} || ','",
        lock=" FOR UPDATE",
        share=" FOR SHARE",
    ),
    "mysql": _MYSQL,
    "mariadb": _MYSQL,
}
