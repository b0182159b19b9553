"""`SQLStore`: all data in an SQL database, in two tables. `MemoryStore`: the same in memory.

Each commit is a transaction. Most batches are a single statement, which is a transaction of its
own. Examples are an append to a session with a known head (`extend`), and a write to a document
under conditions on it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby, product
from operator import methodcaller
from typing import TYPE_CHECKING, Any, TypeVar

from agent_memory.core.processes import fork_safe_lock
from agent_memory.errors import MissingExtra, StoreError, StoreUnavailable
from agent_memory.stores.base import Durability
from agent_memory.stores.kernel import contract as k
from agent_memory.stores.kernel.coding import latest_micros, now_micros
from agent_memory.stores.kernel.rules import WITHIN_HANDLER, State, chunks, holds, named, written
from agent_memory.stores.kernel.vectors import KernelStore
from agent_memory.stores.sql import database as sql
from agent_memory.stores.sql.database import SQLConnection, SQLDatabase
from agent_memory.stores.sql.migrations import is_current, migrate
from agent_memory.stores.sql.reading import FREE, LOG, PIECE, SQLReader, Values, in_pieces, marks
from agent_memory.stores.sql.sqlite import Database
from agent_memory.stores.sql.sqlite_file import Connection

if TYPE_CHECKING:
    from agent_memory.stores.sql.server import Driver, ServerDatabase

T = TypeVar("T")

_FEW = 8  # the most rows in one INSERT
_SMALL = 10_000  # larger documents (characters and bytes in total) do not share an INSERT
_AT = "namespace = ? AND collection = ? AND id = ?"
_STATE = "version, holder, held_until, due"


class SQLKernel(SQLReader):
    def commit(self, batch: k.Batch) -> k.Outcome:
        if not batch.tail and (statement := self._statement(batch)) is not None:
            run = methodcaller("run", *statement)
            # A power loss may undo these writes: afterwards, no holder of a lease is left, and
            # processing a session again is harmless.
            may_be_undone = all(isinstance(write, k.Hold | k.Due) for write in batch.writes)
            changed = self._database.alone(run, synced=not may_be_undone)
            if changed > 0 or not batch.conditions:
                return k.DONE
        return self._database.write(lambda it: self._commit(it, batch))

    def extend(self, head: k.DocId, version: int, line: k.Line, micros: int) -> bool:
        most = self._most_text
        if most is not None and len(line.text) + len(line.body) > most:
            return False
        ns = self._namespace
        values = (ns, *line, ns, *head, version, now_micros() + micros)
        text = self._dialect.extend
        appended: int = self._database.alone(methodcaller("run", text, values))
        return appended == 1

    def _statement(self, batch: k.Batch) -> tuple[str, Values] | None:
        """Return a batch of one write as a statement; None if it needs a transaction.

        The statement changes a row only if the batch's conditions hold.
        """
        if len(batch.writes) != 1:
            return None
        (write,) = batch.writes
        if not batch.conditions and isinstance(write, k.Put):
            return self._dialect.upsert, self._row(write.document, None)
        change = self._change(write, now_micros())
        at = written(write)
        if change is None or (batch.conditions and len(at) != 1):
            return None
        text, values = change
        for condition in batch.conditions:
            test, test_values = self._condition_sql(condition, at[0])
            if test is None:
                return None
            text += f" AND {test}"
            values += test_values
        return text, values

    def _change(self, write: k.Write, now: int) -> tuple[str, Values] | None:
        """Return a write as a statement that ends in a WHERE clause; None if this is impossible."""
        namespace = [self._namespace]
        match write:
            case k.Due(at, micros):
                due = None if micros is None else now + micros
                return f"UPDATE {sql.DOCUMENTS} SET due = ? WHERE {_AT}", [due, *namespace, *at]
            case k.Hold(at, holder, micros):
                text = f"UPDATE {sql.DOCUMENTS} SET holder = ?, held_until = ? WHERE {_AT}"
                return text, [holder, now + micros, *namespace, *at]
            case k.Delete((at,)):
                return f"DELETE FROM {sql.DOCUMENTS} WHERE {_AT}", [*namespace, *at]
            case k.DeleteWhere(scan):
                where, values = self._where(scan)
                return f"DELETE FROM {sql.DOCUMENTS}{self._index(scan)} WHERE {where}", values
        return None

    def _condition_sql(self, condition: k.Condition, at: k.DocId) -> tuple[str | None, Values]:
        """Return a condition as a test for the row of document `at`; None if this is impossible."""
        match condition:
            case k.LogEndsAt(session, seq) if not self.remote:
                ends = f"(SELECT max(seq) FROM {sql.MESSAGES} WHERE {LOG})"
                return f"coalesce({ends}, 0) = ?", [self._namespace, session, seq]
            case k.VersionIs(where, version) if where == at:
                return "version = ?", [version]
            case k.HeldBy(where, holder) if where == at:
                return "holder = ?", [holder]
            case k.Free(where, holder) if where == at:
                now = now_micros()
                return f"(holder = ? OR {FREE})", [holder, now, latest_micros(now)]
            case k.Exists(where) if where == at:
                return "version = version", []
        return None, []

    def _commit(self, it: SQLConnection, batch: k.Batch) -> k.Outcome:
        now = now_micros()
        documents, logs = named(batch.conditions)
        states = self._lock_documents(it, documents, batch.writes)
        tails = {session: self._tail(it, session) for session in logs}
        if not all(holds(condition, states, tails, now) for condition in batch.conditions):
            return k.Outcome(False, self._documents(it, documents), tails)
        # new documents are inserted with their due times. Of several due times, the earliest counts
        wakes = [write for write in batch.writes if isinstance(write, k.Wake)]
        wakes.sort(key=lambda wake: wake.micros, reverse=True)
        woken = {at: now + wake.micros for wake in wakes for at in wake.ids}
        missing = {at: woken.get(at) for at, state in states.items() if state is None}
        for kind, writes in groupby(batch.writes, type):
            if kind is k.Put:
                self._put(it, [write.document for write in writes], missing)  # type: ignore[union-attr]
            elif kind is k.DeleteWhere:
                self._delete_where(it, [write.scan for write in writes])  # type: ignore[union-attr]
            elif kind is k.Truncate:
                self._truncate(it, list(writes))  # type: ignore[arg-type]
            else:
                for write in writes:
                    self._apply(it, write, now, states, missing)
        tails = {batch.tail: self._tail(it, batch.tail)} if batch.tail else {}
        return k.Outcome(True, {}, tails)

    def _lock_documents(
        self, it: SQLConnection, documents: Iterable[k.DocId], writes: Sequence[k.Write]
    ) -> dict[k.DocId, State | None]:
        """Lock documents, and return their states; None for missing ones.

        Missing documents cannot be locked. They are written by a plain INSERT: the second of two
        writers fails, and has to retry.
        """
        changed = {at for write in writes for at in written(write)}
        ids = sorted(documents)  # sorted, so that two writers cannot deadlock
        states: dict[k.DocId, State | None] = dict.fromkeys(ids)
        for is_written, group in groupby(ids, lambda at: at in changed):
            lock = self._dialect.lock if is_written else self._dialect.share
            for at, row in self._rows(it, f"id, {_STATE}", list(group), lock):
                states[at] = State(*row[1:])
        return states

    def _put(
        self, it: SQLConnection, documents: Sequence[k.Document], new: Mapping[k.DocId, int | None]
    ) -> None:
        for is_new, group in groupby(documents, lambda document: document.key in new):
            text = sql.INSERT if is_new else self._dialect.upsert
            some = list(group)
            rows = [self._row(document, new.get(document.key)) for document in some]
            size = sum(len(document.body) + len(document.data) for document in some)
            if size > _SMALL or len({document.key for document in some}) < len(some):
                it.run_each(text, rows)
                continue
            for few in chunks(rows, _FEW):
                more = ", ".join([sql.DOCUMENT_VALUES] * len(few))
                values = [value for row in few for value in row]
                it.run(text.replace(sql.DOCUMENT_VALUES, more), values)

    def _row(self, document: k.Document, due: int | None) -> Values:
        collection, name, owner, session, *rest = document[:-1]
        return [self._namespace, collection, name, owner or None, session or None, *rest, due]

    def _apply(
        self,
        it: SQLConnection,
        write: k.Write,
        now: int,
        states: Mapping[k.DocId, State | None],
        new: Mapping[k.DocId, int | None],
    ) -> None:
        ns = self._namespace
        match write:
            case k.Append(lines):
                pieces, lines = in_pieces(lines, self._most_text)
                self._put(it, pieces, {})
                self._append(it, [(ns, *line) for line in lines])
            case k.Wake(ids, micros):
                by = now + micros
                ids = [at for at in ids if at not in new and not _is_due(states.get(at), by)]
                later = f"UPDATE {sql.DOCUMENTS} SET due = ? WHERE (due IS NULL OR due > ?) AND "
                for where, values in self._named(ids):
                    it.run(later + where, [by, by, *values])
            case k.Delete(ids):
                for where, values in self._named(ids):
                    it.run(f"DELETE FROM {sql.DOCUMENTS} WHERE {where}", values)
            case k.Due() | k.Hold() | k.DeleteWhere():
                change = self._change(write, now)
                assert change is not None
                it.run(*change)
            case k.Expire(session, upto):
                it.run(f"DELETE FROM {sql.MESSAGES} WHERE {LOG} AND seq <= ?", (ns, session, upto))
                self._drop_pieces(it, [k.Scan(PIECE, session=session, first_below=upto + 1)])

    def _truncate(self, it: SQLConnection, logs: Sequence[k.Truncate]) -> None:
        """Shorten logs. One statement shortens all logs that end at the same seq."""
        for after, group in groupby(logs, lambda log: log.after):
            sessions = [log.session for log in group]
            for some in chunks(sessions):
                where = f"namespace = ? AND session IN ({marks(some)}) AND seq > ?"
                it.run(f"DELETE FROM {sql.MESSAGES} WHERE {where}", (self._namespace, *some, after))
            pieces = [k.Scan(PIECE, session=session, last_above=after) for session in sessions]
            self._drop_pieces(it, pieces)

    def _drop_pieces(self, it: SQLConnection, scans: Sequence[k.Scan]) -> None:
        if self._most_text is not None:
            self._delete_where(it, scans)

    def _delete_where(self, it: SQLConnection, scans: Sequence[k.Scan]) -> None:
        """Delete the documents of scans. Scans that only name an owner or a session are joined."""
        for column, group in groupby(scans, _only_filter):
            some = list(dict.fromkeys(group))
            names = sorted({scan.collection for scan in some})
            wanted = sorted({getattr(scan, column) for scan in some}) if column else []
            if len(some) == 1 or len(some) != len(names) * len(wanted):
                for scan in some:
                    where, values = self._where(scan)
                    it.run(f"DELETE FROM {sql.DOCUMENTS}{self._index(scan)} WHERE {where}", values)
                continue
            index = self._dialect.by_owner if column == "owner" else ""
            for in_names, in_wanted in product(chunks(names), chunks(wanted)):
                it.run(
                    f"DELETE FROM {sql.DOCUMENTS}{index} WHERE namespace = ? AND collection IN "
                    f"({marks(in_names)}) AND {column} IN ({marks(in_wanted)})",
                    [self._namespace, *in_names, *in_wanted],
                )

    def _append(self, it: SQLConnection, rows: Sequence[Sequence[Any]]) -> None:
        # one statement inserts all rows, because `run_each` may need several round trips
        if self.remote and 1 < len(rows) <= _FEW:
            more = f", {sql.LINE_VALUES}" * (len(rows) - 1)
            it.run(sql.APPEND + more, [value for row in rows for value in row])
        else:
            it.run_each(sql.APPEND, rows)

    def erase(self) -> str | None:
        return self._database.secure_erase()

    def sync(self) -> None:
        self._database.sync()

    def close(self) -> None:
        self._database.close()


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


def _only_filter(scan: k.Scan) -> str:
    """Return "owner" or "session" if a scan selects by this column alone; otherwise ""."""
    for column in ("owner", "session"):
        value = getattr(scan, column)
        if value and scan == k.Scan(scan.collection, **{column: value}):
            return column
    return ""


def _is_due(state: State | None, by: int) -> bool:
    return state is not None and state.due is not None and state.due <= by
