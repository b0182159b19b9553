"""The calls of the kernel on SQL that read, and the storage of long messages in pieces.

A message that exceeds the database's limit for a statement is stored in pieces, which are
documents. The body of the message's line is then a JSON array: the number of pieces, a digest of
the message, and whether the message is only a text. The body of any other line is not an array.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, TypeVar

from agent_memory.stores.kernel import contract as k
from agent_memory.stores.kernel.coding import CURSORS, latest_micros, now_micros
from agent_memory.stores.kernel.rules import chunks
from agent_memory.stores.sql import database as sql
from agent_memory.stores.sql.database import SQLConnection, SQLDatabase

T = TypeVar("T")
Values = list[Any]

PIECE = "piece"
_TRIES = 20
_ALL = 2**62
LOG = "namespace = ? AND session = ?"
_TAIL = f"SELECT seq, total FROM {sql.MESSAGES} WHERE {LOG} ORDER BY seq DESC LIMIT 1"
_LINES = (
    "SELECT session, seq, role, text, created_at, tokens, total, encoding, body "
    f"FROM {sql.MESSAGES} WHERE {LOG} AND "
)
_SHORT = "id, owner, session, first, last, version, about"
_WHOLE = f"{_SHORT}, body, data"
_END, _TOTAL = (
    f"(SELECT {name} FROM {sql.MESSAGES} AS m WHERE m.namespace = d.namespace AND m.session = d.id "
    "ORDER BY m.seq DESC LIMIT 1)"
    for name in ("seq", "total")
)
_TAILS = f"{_END}, {_TOTAL}"
FREE = "(holder = '' OR held_until <= ? OR held_until > ?)"
_DUE = (
    "SELECT id, row_number() OVER (PARTITION BY owner ORDER BY due, id) AS turn, due "
    f"FROM {sql.DOCUMENTS} WHERE namespace = ? AND collection = ? AND due <= ? AND {FREE} "
    "ORDER BY turn, due, id LIMIT ?"
)


class SQLReader(k.Kernel):
    """The calls of `Kernel` that only read."""

    def __init__(self, database: SQLDatabase, namespace: str) -> None:
        self.remote = database.remote
        self._database = database
        self._namespace = namespace
        self._dialect = sql.DIALECTS[database.read(lambda it: it.dialect)]
        self._most_text = database.read(lambda it: it.most_text)

    def documents(
        self, ids: Sequence[k.DocId], *, tails: bool = False, bodies: bool = True
    ) -> list[k.Document | None]:
        documents = self._database.read(
            lambda it: self._documents(it, ids, tails=tails, bodies=bodies)
        )
        return [documents[at] for at in ids]

    def scan(self, scan: k.Scan) -> list[k.Document]:
        where, values = self._where(scan)
        names = _SHORT if not scan.bodies else _WHOLE
        order = "first, id" if scan.session else "id"
        table = f"{sql.DOCUMENTS} AS d{self._index(scan)}"
        if scan.names:
            names = "id"
        elif scan.tails:
            names += f", {_TAILS}"
        text = f"SELECT {names} FROM {table} WHERE {where} ORDER BY {order} LIMIT ?"
        values.append(_ALL if scan.limit is None else scan.limit)
        rows = self._database.read(lambda it: it.rows(text, values))
        if scan.names:
            return [k.Document(scan.collection, row[0]) for row in rows]
        shown = {"tails": scan.tails, "bodies": scan.bodies}
        return [_document(scan.collection, row, **shown) for row in rows]

    def owners(self, collection: str, beginning: str) -> list[str]:
        where = "namespace = ? AND collection = ? AND owner IS NOT NULL"
        return self._distinct("owner", where, [self._namespace, collection], beginning)

    def collections(self, beginning: str) -> list[str]:
        return self._distinct("collection", "namespace = ?", [self._namespace], beginning)

    def _distinct(self, column: str, where: str, parameters: Values, beginning: str) -> list[str]:
        """Return a column's distinct values that start with `beginning`, without a full scan."""
        least = f"(SELECT min({column}) FROM {sql.DOCUMENTS} WHERE {where} AND {column} {{}})"
        begins = f"substr(name, 1, {len(beginning)}) = ?"
        text = (
            f"WITH RECURSIVE found(name) AS (SELECT {least.format('>= ?')} UNION ALL "
            f"SELECT {least.format('> found.name')} FROM found WHERE {begins}) "
            f"SELECT name FROM found WHERE {begins}"
        )
        values = [*parameters, beginning, *parameters, beginning, beginning]
        return [name for (name,) in self._database.read(lambda it: it.rows(text, values))]

    def due(self, collection: str, limit: int) -> list[k.Document]:
        now = now_micros()
        values = [self._namespace, collection, now, now, latest_micros(now), limit]

        def work(it: SQLConnection) -> list[k.Document]:
            # the first query returns only ids, because heads may have large system messages
            ids = [k.DocId(collection, row[0]) for row in it.rows(_DUE, values)]
            documents = self._documents(it, ids, tails=True)
            return [document for at in ids if (document := documents[at]) is not None]

        return self._database.read(work)

    def lines(self, parts: Sequence[k.Part]) -> list[k.Line]:
        def read(it: SQLConnection) -> list[k.Line]:
            lines = [k.Line(*row) for part in parts for row in self._part(it, part)]
            return lines if self._most_text is None else [self._joined(it, line) for line in lines]

        lines = self._database.read(read)
        for _ in range(_TRIES):
            if self._most_text is None or not any(map(_is_in_pieces, lines)):
                break
            lines = self._database.read(read)  # pieces are missing: the log changed meanwhile
        return lines  # a line with lost pieces decodes as damaged

    def _joined(self, it: SQLConnection, line: k.Line) -> k.Line:
        """Return a line with its message joined from pieces; unchanged if pieces are missing."""
        if not _is_in_pieces(line):
            return line
        count, digest, is_plain = json.loads(line.body)
        pieces = self._documents(it, [_piece_id(line, number) for number in range(count)])
        text = "".join(piece.body for piece in pieces.values() if piece is not None)
        if _digest(text) != digest:
            return line
        return line._replace(text=text, body="") if is_plain else line._replace(body=text)

    def _part(self, it: SQLConnection, part: k.Part) -> Iterator[Sequence[Any]]:
        values = [self._namespace, part.session]
        if part.seqs is None:
            limit = _ALL if part.limit is None else part.limit
            text = f"{_LINES} seq > ? ORDER BY seq LIMIT ?"
            yield from it.rows(text, [*values, part.after, limit])
            return
        for seqs in chunks(part.seqs):
            yield from it.rows(f"{_LINES} seq IN ({marks(seqs)}) ORDER BY seq", [*values, *seqs])

    def counts(self, collection: str) -> tuple[int, int]:
        ns = self._namespace
        documents = f"SELECT count(*) FROM {sql.DOCUMENTS} WHERE namespace = ? AND collection = ?"
        lines = f"SELECT count(*) FROM {sql.MESSAGES} WHERE namespace = ?"
        text = f"SELECT ({documents}), ({lines})"
        (row,) = self._database.read(lambda it: it.rows(text, [ns, collection, ns]))
        return row[0], row[1]

    def _tail(self, it: SQLConnection, session: str) -> k.Tail:
        rows = it.rows(_TAIL, (self._namespace, session))
        return k.Tail(*rows[0]) if rows else k.EMPTY

    def _documents(
        self, it: SQLConnection, ids: Iterable[k.DocId], *, tails: bool = False, bodies: bool = True
    ) -> dict[k.DocId, k.Document | None]:
        documents: dict[k.DocId, k.Document | None] = dict.fromkeys(ids)
        names = _WHOLE if bodies else _SHORT
        for at, row in self._rows(it, f"{names}, {_TAILS}" if tails else names, sorted(documents)):
            documents[at] = _document(at.collection, row, tails=tails, bodies=bodies)
        return documents

    def _rows(
        self, it: SQLConnection, names: str, ids: Sequence[k.DocId], lock: str = ""
    ) -> Iterator[tuple[k.DocId, Sequence[Any]]]:
        """Yield the rows of existing documents. The first column in `names` is `id`."""
        for where, values in self._named(ids):
            order = f" ORDER BY id{lock}" if lock else ""
            text = f"SELECT {names} FROM {sql.DOCUMENTS} AS d WHERE {where}{order}"
            for row in it.rows(text, values):
                yield k.DocId(values[1], row[0]), row

    def _named(self, ids: Sequence[k.DocId]) -> Iterator[tuple[str, Values]]:
        """Yield conditions that select documents, one collection at a time, in order."""
        for collection, group in groupby(sorted(ids), lambda at: at.collection):
            for names in chunks([at.id for at in group]):
                test = "= ?" if len(names) == 1 else f"IN ({marks(names)})"
                where = f"namespace = ? AND collection = ? AND id {test}"
                yield where, [self._namespace, collection, *names]

    def _index(self, scan: k.Scan) -> str:
        return self._dialect.by_owner if scan.owner and scan.session is None else ""

    def _where(self, scan: k.Scan) -> tuple[str, Values]:
        where, values = "namespace = ? AND collection = ?", [self._namespace, scan.collection]
        for name, wanted in (("owner", scan.owner), ("session", scan.session)):
            if wanted is not None:
                where += f" AND {name} = ?" if wanted else f" AND {name} IS NULL"
                values += [wanted] if wanted else ()
        for test, value in (
            ("id > ?", scan.after or None),
            ("first < ?", scan.first_below),
            ("last > ?", scan.last_above),
        ):
            if value is not None:
                where += f" AND {test}"
                values.append(value)  # type: ignore[arg-type]
        if scan.behind:
            where += f" AND {self._is_behind()}"
            values.append(f"{json.dumps(scan.behind)}:")
        return where, values

    def _is_behind(self) -> str:
        """Return the SQL condition for heads in which a block's cursor is not at the log's end."""
        find, marked = self._dialect.find, self._dialect.marked
        cursors = f"substr(about, {find}(about, '{CURSORS}'))"
        return f"{find}(replace({cursors}, '}}', ','), {marked.format(f'coalesce({_END}, 0)')}) = 0"


def _document(
    collection: str, row: Sequence[Any], *, tails: bool = False, bodies: bool = True
) -> k.Document:
    name, owner, session, first, last, version, about, *rest = row
    body, data = rest[:2] if bodies else ("", b"")
    tail = k.Tail(*rest[-2:]) if tails and rest[-2] is not None else k.EMPTY
    return k.Document(
        collection, name, owner or "", session or "", first, last, version, about, body, data, tail
    )


def marks(values: Sequence[Any]) -> str:
    return ", ".join("?" * len(values))


def in_pieces(
    lines: Sequence[k.Line], most: int | None
) -> tuple[list[k.Document], Sequence[k.Line]]:
    """Split lines with more than `most` characters. Return the pieces, and all lines to write."""
    if most is None:
        return [], lines
    pieces: list[k.Document] = []
    written: list[k.Line] = []
    for line in lines:
        if len(line.text) + len(line.body) > most:
            text, seq = line.body or line.text, line.seq
            parts = [text[at : at + most] for at in range(0, len(text), most)]
            pieces += [
                k.Document(*_piece_id(line, number), "", line.session, seq, seq, body=part)
                for number, part in enumerate(parts)
            ]
            mark = json.dumps([len(parts), _digest(text), not line.body])
            line = line._replace(text="", body=mark)
        written.append(line)
    return pieces, written


def _piece_id(line: k.Line, number: int) -> k.DocId:
    return k.DocId(PIECE, f"{line.seq}.{number}:{line.session}")


def _is_in_pieces(line: k.Line) -> bool:
    return line.body.startswith("[")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
