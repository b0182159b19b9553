"""Write a store for a database that the package does not support, here DuckDB.

    pip install agent-memory-log duckdb
    python examples/duckdb_store.py

A kernel stores documents and the lines of logs, and commits batches of conditions and writes.
`KernelStore` turns a kernel into a store. docs/kernel.md has the contract. The project's tests run
the contract suite of stores against this file. Only one process may open a DuckDB file, so a thread
lock is enough to order all calls.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb

from agent_memory import AgentMemory
from agent_memory.stores.kernel.coding import now_micros
from agent_memory.stores.kernel.contract import (
    DONE,
    EMPTY,
    Append,
    Batch,
    Delete,
    DeleteWhere,
    DocId,
    Document,
    Due,
    Expire,
    Hold,
    Kernel,
    Line,
    Outcome,
    Part,
    Put,
    Scan,
    Tail,
    Truncate,
    Wake,
    Write,
)
from agent_memory.stores.kernel.rules import State, holds, in_turns, named
from agent_memory.stores.kernel.vectors import KernelStore

SCHEMA = """
CREATE TABLE IF NOT EXISTS messages (
    namespace TEXT, session TEXT, seq BIGINT, role TEXT, text TEXT, created_at BIGINT,
    tokens BIGINT, total BIGINT, encoding TEXT, body TEXT);
CREATE INDEX IF NOT EXISTS messages_session ON messages (session);
CREATE TABLE IF NOT EXISTS documents (
    namespace TEXT, collection TEXT, id TEXT, owner TEXT, session TEXT, first BIGINT, last BIGINT,
    version BIGINT, about TEXT, body TEXT, data BLOB, holder TEXT, held_until BIGINT, due BIGINT,
    PRIMARY KEY (namespace, collection, id));
"""
FIELDS = "collection, id, owner, session, first, last, version, about, body, data"
STATE = "version, holder, held_until, due"
AT = "namespace = ? AND collection = ? AND id = ?"
PUT = f"""
INSERT INTO documents (namespace, {FIELDS}, holder, held_until)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, '', 0)
ON CONFLICT DO UPDATE SET owner = excluded.owner, session = excluded.session,
    first = excluded.first, last = excluded.last, version = excluded.version,
    about = excluded.about, body = excluded.body, data = excluded.data
"""
LOG = "FROM messages WHERE namespace = ? AND session = ?"


class DuckDBKernel(Kernel):
    """A DuckDB file as a kernel.

    Args:
        path: The file, or ":memory:".
        namespace: The namespace of the deployment.
    """

    def __init__(self, path: str, namespace: str = "default") -> None:
        self._namespace = namespace
        self._lock = threading.RLock()
        self._connection = duckdb.connect(path)
        self._connection.execute(SCHEMA)

    def commit(self, batch: Batch) -> Outcome:
        with self._transaction():
            return self._commit(batch)

    def documents(
        self, ids: Sequence[DocId], *, tails: bool = False, bodies: bool = True
    ) -> list[Document | None]:
        with self._lock:
            found = [self._rows(f"SELECT {FIELDS} FROM documents WHERE {AT}", *at) for at in ids]
            return [self._document(rows[0], tails, bodies) if rows else None for rows in found]

    def scan(self, scan: Scan) -> list[Document]:
        where, values = selection(scan)
        order = "first, id" if scan.session else "id"
        limit = "" if scan.limit is None else f" LIMIT {scan.limit:d}"
        text = f"SELECT {FIELDS} FROM documents WHERE {where} ORDER BY {order}{limit}"
        with self._lock:
            rows = self._rows(text, *values)
            return [self._document(row, scan.tails, scan.bodies) for row in rows]

    def owners(self, collection: str, beginning: str) -> list[str]:
        text = (
            "SELECT DISTINCT owner FROM documents WHERE namespace = ? AND collection = ?"
            " AND owner <> '' AND starts_with(owner, ?) ORDER BY owner"
        )
        with self._lock:
            return [row[0] for row in self._rows(text, collection, beginning)]

    def collections(self, beginning: str) -> list[str]:
        text = (
            "SELECT DISTINCT collection FROM documents WHERE namespace = ?"
            " AND starts_with(collection, ?) ORDER BY collection"
        )
        with self._lock:
            return [row[0] for row in self._rows(text, beginning)]

    def due(self, collection: str, limit: int) -> list[Document]:
        now = now_micros()
        text = (
            f"SELECT {FIELDS}, {STATE} FROM documents"
            " WHERE namespace = ? AND collection = ? AND due <= ? ORDER BY due, id"
        )
        with self._lock:
            rows = self._rows(text, collection, now)
            ready = [row for row in rows if State(*row[10:]).is_due(now)]
            fair = in_turns(ready, owner=lambda row: str(row[2]))
            return [self._document(row[:10], tails=True) for row in fair[:limit]]

    def lines(self, parts: Sequence[Part]) -> list[Line]:
        with self._lock:
            return [Line(*row) for part in parts for row in self._part(part)]

    def counts(self, collection: str) -> tuple[int, int]:
        documents = "SELECT count(*) FROM documents WHERE namespace = ? AND collection = ?"
        with self._lock:
            (count,) = self._rows(documents, collection)
            (lines,) = self._rows("SELECT count(*) FROM messages WHERE namespace = ?")
            return count[0], lines[0]

    def erase(self) -> None:
        with self._lock:
            self._connection.execute("CHECKPOINT")

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._lock:
            self._connection.execute("BEGIN")
            try:
                yield
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")

    def _commit(self, batch: Batch) -> Outcome:
        now = now_micros()
        ids, logs = named(batch.conditions)
        tails = {session: self._tail(session) for session in logs}
        states = {at: self._state(at) for at in ids}
        if not all(holds(one, states, tails, now) for one in batch.conditions):
            return Outcome(False, dict(zip(ids, self.documents([*ids]), strict=True)), tails)
        for write in batch.writes:
            self._apply(write, now)
        return Outcome(True, {}, {batch.tail: self._tail(batch.tail)}) if batch.tail else DONE

    def _apply(self, write: Write, now: int) -> None:
        match write:
            case Append(lines):
                marks = ", ".join("?" * 10)
                rows = [[self._namespace, *line] for line in lines]
                self._connection.executemany(f"INSERT INTO messages VALUES ({marks})", rows)
            case Truncate(session, after):
                self._rows(f"DELETE {LOG} AND seq > ?", session, after)
            case Expire(session, upto):
                self._rows(f"DELETE {LOG} AND seq <= ?", session, upto)
            case Put(document):
                self._rows(PUT, *document[:10])
            case Wake(ids, micros):
                for at in ids:
                    state = self._state(at)
                    if state is not None and (state.due is None or state.due > now + micros):
                        self._apply(Due(at, micros), now)
            case Due(at, micros):
                self._set("due", at, None if micros is None else now + micros)
            case Hold(at, holder, micros):
                self._set("holder", at, holder)
                self._set("held_until", at, now + micros)
            case Delete(ids):
                for at in ids:
                    self._rows(f"DELETE FROM documents WHERE {AT}", *at)
            case DeleteWhere(scan):
                where, values = selection(scan)
                self._rows(f"DELETE FROM documents WHERE {where}", *values)

    def _set(self, column: str, at: DocId, value: Any) -> None:
        text = f"UPDATE documents SET {column} = ? WHERE {AT}"
        self._connection.execute(text, [value, self._namespace, *at])

    def _rows(self, text: str, *values: Any) -> list[tuple[Any, ...]]:
        return self._connection.execute(text, [self._namespace, *values]).fetchall()

    def _state(self, at: DocId) -> State | None:
        rows = self._rows(f"SELECT {STATE} FROM documents WHERE {AT}", *at)
        return State(*rows[0]) if rows else None

    def _tail(self, session: str) -> Tail:
        rows = self._rows(f"SELECT seq, total {LOG} ORDER BY seq DESC LIMIT 1", session)
        return Tail(*rows[0]) if rows else EMPTY

    def _part(self, part: Part) -> list[tuple[Any, ...]]:
        text = f"SELECT * EXCLUDE (namespace) {LOG} AND"
        if part.seqs is not None:
            return self._rows(f"{text} list_contains(?, seq) ORDER BY seq", part.session, part.seqs)
        limit = "" if part.limit is None else f" LIMIT {part.limit:d}"
        return self._rows(f"{text} seq > ? ORDER BY seq{limit}", part.session, part.after)

    def _document(self, row: Sequence[Any], tails: bool = False, bodies: bool = True) -> Document:
        one = Document(*row)
        if not bodies:
            one = one._replace(body="", data=b"")
        return one._replace(tail=self._tail(one.id)) if tails else one


def selection(scan: Scan) -> tuple[str, list[Any]]:
    """Return the WHERE clause of a scan, and its values without the namespace."""
    tests: Iterable[tuple[str, Any]] = (
        ("owner = ?", scan.owner),
        ("session = ?", scan.session),
        ("id > ?", scan.after or None),
        ("first < ?", scan.first_below),
        ("last > ?", scan.last_above),
    )
    given = [(test, value) for test, value in tests if value is not None]
    where = " AND ".join(["namespace = ?", "collection = ?", *(test for test, _ in given)])
    return where, [scan.collection, *(value for _, value in given)]


def main() -> None:
    with TemporaryDirectory() as folder:
        path = str(Path(folder, "memory.duckdb"))
        with AgentMemory(store=KernelStore(DuckDBKernel(path))) as memory:
            memory.update("monday", "I moved to Lisbon last week.", user_id="ana")
        with AgentMemory(store=KernelStore(DuckDBKernel(path))) as memory:
            for recall in memory.search("Which city do I live in?", user_id="ana"):
                print(recall.text)
        print(
            duckdb.connect(path).execute("SELECT session, seq, role, text FROM messages").fetchall()
        )


if __name__ == "__main__":
    main()
