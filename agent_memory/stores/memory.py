"""`MemoryStore`: all data in dicts, lost when the process ends. For tests and trials.

`MemoryKernel` is the simplest kernel. Read it before you write another kernel.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import NamedTuple

from agent_memory.core.processes import fork_safe_lock
from agent_memory.errors import StoreUnavailable
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
from agent_memory.stores.kernel.rules import WITHIN_HANDLER, State, holds, in_turns, named, selects
from agent_memory.stores.kernel.vectors import KernelStore

_ALL = 2**62


class _Row(NamedTuple):
    """A document with its lease and its due time. Times are in microseconds since 1970."""

    document: Document
    holder: str = ""
    held_until: int = 0
    due: int | None = None

    @property
    def state(self) -> State:
        return State(self.document.version, self.holder, self.held_until, self.due)


class _Log(NamedTuple):
    """A log's first seq, its last seq, and the running total at its end."""

    first: int
    end: int
    total: int


_Key = DocId | tuple[str, int] | str
"""The key of a document, of a line (session and seq), or of a log (session)."""

_State = dict[_Key, _Row | Line | _Log | None]
"""Data by key; None for deleted data."""


class _Index:
    """Sorted ids of the documents of each collection, and of each owner and session in it.

    A commit adds new ids before it stores their documents, and drops old ids afterwards. Readers
    look up each document, and skip ids without a document.
    """

    def __init__(self) -> None:
        self.ids: dict[tuple[str, str], dict[str, list[str]]] = {}

    def add(self, document: Document) -> None:
        for kind, name in _places(document):
            ids = self.ids.setdefault((document.collection, kind), {}).setdefault(name, [])
            if not _has(ids, document.id):
                insort(ids, document.id)

    def drop(self, document: Document, now: _Row | None) -> None:
        """Drop a document's id from its lists, except from the lists of its replacement `now`."""
        places = () if now is None else tuple(_places(now.document))
        for kind, name in _places(document):
            names = self.ids.get((document.collection, kind), {})
            if (kind, name) in places or (ids := names.get(name)) is None:
                continue
            if _has(ids, document.id):
                del ids[bisect_left(ids, document.id)]
            if not ids:
                del names[name]


def _has(ids: Sequence[str], name: str) -> bool:
    at = bisect_left(ids, name)
    return at < len(ids) and ids[at] == name


def _places(document: Document) -> Iterator[tuple[str, str]]:
    yield "", ""
    yield "owner", document.owner
    yield "session", document.session


class _View:
    """The stored data, overlaid with the changes of an unfinished commit."""

    def __init__(self, state: _State, index: _Index) -> None:
        self._state, self._index = state, index
        self.changes: _State = {}

    def row(self, at: DocId) -> _Row | None:
        value = self.changes[at] if at in self.changes else self._state.get(at)
        return value if isinstance(value, _Row) else None

    def log(self, session: str) -> _Log | None:
        changes = self.changes
        value = changes[session] if session in changes else self._state.get(session)
        return value if isinstance(value, _Log) else None

    def tail(self, session: str) -> Tail:
        log = self.log(session)
        return EMPTY if log is None else Tail(log.end, log.total)

    def line(self, session: str, seq: int) -> Line | None:
        at = session, seq
        value = self.changes[at] if at in self.changes else self._state.get(at)
        return value if isinstance(value, Line) else None

    def selected(self, scan: Scan) -> list[_Row]:
        kind, name = ("", "") if scan.owner is None else ("owner", scan.owner)
        if scan.session is not None:
            kind, name = "session", scan.session
        ids = self._index.ids.get((scan.collection, kind), {}).get(name, [])
        rows: list[_Row] = []
        for name in ids[bisect_right(ids, scan.after) if scan.after else 0 :]:
            row = self.row(DocId(scan.collection, name))
            if row is not None and selects(scan, row.document):
                rows.append(row)
                if not scan.session and len(rows) == scan.limit:
                    break
        if scan.session:
            rows.sort(key=lambda row: (row.document.first, row.document.id))
        return rows[: scan.limit]

    def shown(self, document: Document, *, tails: bool, bodies: bool) -> Document:
        if not bodies:
            document = document._replace(body="", data=b"")
        return document._replace(tail=self.tail(document.id)) if tails else document

    def commit(self, batch: Batch, now: int) -> Outcome:
        documents, logs = named(batch.conditions)
        tails = {session: self.tail(session) for session in logs}
        rows = {at: self.row(at) for at in documents}
        states = {at: row and row.state for at, row in rows.items()}
        if not all(holds(condition, states, tails, now) for condition in batch.conditions):
            return Outcome(False, {at: row and row.document for at, row in rows.items()}, tails)
        for write in batch.writes:
            self._apply(write, now)
        return Outcome(True, {}, {batch.tail: self.tail(batch.tail)}) if batch.tail else DONE

    def _apply(self, write: Write, now: int) -> None:
        match write:
            case Append(lines):
                for line in lines:
                    log = self.log(line.session)
                    first = line.seq if log is None else log.first
                    self.changes[line.session, line.seq] = line
                    self.changes[line.session] = _Log(first, line.seq, line.total)
            case Truncate(session, after):
                self._keep(session, 0, after)
            case Expire(session, upto):
                self._keep(session, upto + 1, _ALL)
            case Put(document):
                row = self.row(document.key)
                self._index.add(document)
                self.changes[document.key] = (row or _Row(document))._replace(document=document)
            case Wake(ids, micros):
                for at in ids:
                    if (row := self.row(at)) and (row.due is None or row.due > now + micros):
                        self.changes[at] = row._replace(due=now + micros)
            case Due(at, micros):
                if row := self.row(at):
                    self.changes[at] = row._replace(due=None if micros is None else now + micros)
            case Hold(at, holder, micros):
                if row := self.row(at):
                    self.changes[at] = row._replace(holder=holder, held_until=now + micros)
            case Delete(ids):
                self.changes.update(dict.fromkeys(ids))
            case DeleteWhere(scan):
                self.changes.update({row.document.key: None for row in self.selected(scan)})

    def _keep(self, session: str, first: int, end: int) -> None:
        """Remove all lines of a log except those from seq `first` to `end`."""
        log = self.log(session)
        if log is None:
            return
        left = range(max(first, log.first), min(end, log.end) + 1)
        before = range(log.first, min(left.start, log.end + 1))
        for seq in chain(before, range(max(left.stop, log.first), log.end + 1)):
            self.changes[session, seq] = None
        last = self.line(session, left[-1]) if left else None
        self.changes[session] = None if last is None else _Log(left.start, last.seq, last.total)


class MemoryKernel(Kernel):
    """The kernel in memory."""

    def __init__(self) -> None:
        self._lock = fork_safe_lock()
        self._writing = False
        self._state: _State = {}
        self._index = _Index()

    def commit(self, batches: Sequence[Batch]) -> list[Outcome]:
        with self._written() as view:
            now = now_micros()
            outcomes = [view.commit(batch, now) for batch in batches]
            before = [(at, self._state.get(at)) for at in view.changes]
            self._state.update(view.changes)
            for at, was in before:
                if isinstance(was, _Row):
                    self._index.drop(was.document, view.row(was.document.key))
                if self._state[at] is None:
                    del self._state[at]
        return outcomes

    def extend(self, head: DocId, version: int, line: Line, micros: int) -> bool:
        with self._written() as view:
            row, log = view.row(head), view.log(line.session)
            if row is None or row.document.version != version or row.due is None:
                return False
            if row.due > now_micros() + micros or line.seq != view.tail(line.session).seq + 1:
                return False
            first = line.seq if log is None else log.first
            after = _Log(first, line.seq, line.total)
            self._state.update({(line.session, line.seq): line, line.session: after})
        return True

    @contextmanager
    def _written(self) -> Iterator[_View]:
        """Exclude other writers, and yield a view. The caller must change the data by one `update`
        of a dict, so that a signal handler sees all changes or none."""
        with self._lock:
            if self._writing:
                raise StoreUnavailable(WITHIN_HANDLER)
            self._writing = True
            try:
                yield self._view()
            finally:
                self._writing = False

    def documents(
        self, ids: Sequence[DocId], *, tails: bool = False, bodies: bool = True
    ) -> list[Document | None]:
        with self._lock:
            view = self._view()
            rows = [view.row(at) for at in ids]
            return [
                None if row is None else view.shown(row.document, tails=tails, bodies=bodies)
                for row in rows
            ]

    def scan(self, scan: Scan) -> list[Document]:
        with self._lock:
            view = self._view()
            documents = [row.document for row in view.selected(scan)]
            if scan.names:
                return [Document(*document.key) for document in documents]
            return [view.shown(each, tails=scan.tails, bodies=scan.bodies) for each in documents]

    def owners(self, collection: str, beginning: str) -> list[str]:
        with self._lock:
            names = sorted(self._index.ids.get((collection, "owner"), {}))
            view = self._view()
            some = [owner for owner in names if owner and owner.startswith(beginning)]
            return [owner for owner in some if view.selected(Scan(collection, owner, limit=1))]

    def collections(self, beginning: str) -> list[str]:
        with self._lock:
            names = sorted(
                {name for name, _ in list(self._index.ids) if name.startswith(beginning)}
            )
            view = self._view()
            return [name for name in names if view.selected(Scan(name, limit=1))]

    def due(self, collection: str, limit: int) -> list[Document]:
        with self._lock:
            now, view = now_micros(), self._view()
            ready = [row for row in view.selected(Scan(collection)) if row.state.is_due(now)]
            ready.sort(key=lambda row: (row.due or 0, row.document.id))
            fair = in_turns(ready, owner=lambda row: row.document.owner)[:limit]
            return [view.shown(row.document, tails=True, bodies=True) for row in fair]

    def lines(self, parts: Sequence[Part]) -> list[Line]:
        with self._lock:
            view = self._view()
            return [line for part in parts for line in _lines(view, part)]

    def counts(self, collection: str) -> tuple[int, int]:
        with self._lock:
            lines = sum(isinstance(value, Line) for value in list(self._state.values()))
            return len(self._view().selected(Scan(collection))), lines

    def _view(self) -> _View:
        return _View(self._state, self._index)


def _lines(view: _View, part: Part) -> list[Line]:
    log = view.log(part.session)
    if log is None:
        return []
    seqs: Iterable[int] | None = part.seqs
    if seqs is None:
        first = max(part.after + 1, log.first)
        most = log.end if part.limit is None else min(log.end, first + part.limit - 1)
        seqs = range(first, most + 1)
    lines = (view.line(part.session, seq) for seq in seqs)
    return [line for line in lines if line is not None]


class MemoryStore(KernelStore):
    """A store without a database.

    Args:
        namespace: Ignored, because instances share nothing.
    """

    def __init__(self, namespace: str = "default") -> None:
        super().__init__(MemoryKernel())
        self.namespace = namespace
