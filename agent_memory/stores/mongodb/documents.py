"""Translates documents, heads, lines and batches of the kernel to MongoDB documents and filters.

The module calls no database. The kernel's documents are in the collection `agent_memory_documents`.
A head also has the end of its session's log and the newest lines, so that one command can append.
All other lines are in the collection `agent_memory_messages`.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from agent_memory.errors import StoreError
from agent_memory.stores.kernel import contract as k
from agent_memory.stores.kernel.coding import latest_micros
from agent_memory.stores.kernel.rules import State, named, written

Doc = dict[str, Any]

Effects = Mapping[str, tuple[k.DocId, k.Document | None]]
"""The documents that a batch writes, by `_id`. A value is a document's id and its new content. If
the content is None, the document is deleted. If the batch concerns no session, the last document is
the primary (see `staging.py`)."""

NEVER = 2**62
"""The due time of a document that is never due."""

HEAVY = 32 * 2**10
"""The maximum size of a head's lines, in bytes. If a head's lines exceed this size, all these lines
are moved to separate documents. If the lines of one batch exceed this size, they are written to
separate documents before the append."""

WITHOUT_LINES: Doc = {"lines": 0, "put": 0}
WITHOUT_BODIES: Doc = {**WITHOUT_LINES, "body": 0, "data": 0}

_FIELDS = ("owner", "session", "first", "last", "version", "about", "body", "data")
_LINE = ("role", "text", "created_at", "tokens", "total", "encoding", "body")
_MOST_MARKS = 16
_ROW_BYTES = 256  # the approximate size of a line without its text
_PIECE = 2**21  # maximum characters of a piece: a document may have 16 MiB, a character 4 bytes


def token() -> str:
    return secrets.token_hex(8)


def marked(op: str) -> Doc:
    """Return the part of an update that adds the change's name `op` to the document's `marks`."""
    return {"$push": {"marks": {"$each": [op], "$slice": -_MOST_MARKS}}}


def place_of(namespace: str, at: k.DocId) -> str:
    return f"{quote(namespace, safe='')}/{quote(at.collection, safe='')}/{at.id}"


def empty(namespace: str, at: k.DocId) -> Doc:
    """Return the fields of a document that does not exist yet, without its `_id`."""
    return {"ns": namespace, "c": at.collection, "id": at.id, "live": 0, "holder": "", "until": 0}


def values_of(document: k.Document) -> Doc:
    values = {name: getattr(document, name) for name in _FIELDS}
    return values | {"data": document.data or None}


def document_of(doc: Doc, *, tails: bool = False, bodies: bool = True) -> k.Document:
    values = {name: doc[name] for name in _FIELDS if doc.get(name) is not None}
    if not bodies:
        values |= {"body": "", "data": b""}
    tail = k.Tail(doc.get("end", 0), doc.get("total", 0)) if tails else k.Tail()
    return k.Document(doc["c"], doc["id"], **values, tail=tail)


def state_of(doc: Doc | None) -> State | None:
    """Return the part of a document that conditions read; None if it does not exist."""
    if doc is None or not doc["live"]:
        return None
    return State(doc["version"], doc["holder"], doc["until"], doc.get("due"))


def filter_of(conditions: Sequence[k.Condition], now: int) -> Doc:
    which: Doc = {}
    for condition in conditions:
        match condition:
            case k.VersionIs(_, version):
                which |= {"live": 1, "version": version}
            case k.HeldBy(_, holder):
                which |= {"live": 1, "holder": holder}
            case k.LogEndsAt(_, seq):
                which |= {"end": seq}
            case k.Exists():
                which |= {"live": 1}
            case k.Missing():
                which |= {"live": 0}
            case k.Free(_, holder):
                which |= free(now, holder)
    return which


def free(now: int, holder: str = "") -> Doc:
    """Return the filter for documents that `holder` may lease now."""
    # nx-27017, the test server, evaluates `$or` next to `_id` wrongly, but `$nor` correctly
    held = {"holder": {"$ne": holder}, "until": {"$gt": now, "$lte": latest_micros(now)}}
    return {"$nor": [held]}


def selection(namespace: str, scan: k.Scan) -> Doc:
    which: Doc = {"ns": namespace, "c": scan.collection, "live": 1}
    tests: Iterable[tuple[str, Any]] = (
        ("owner", scan.owner),
        ("session", scan.session),
        ("id", {"$gt": scan.after} if scan.after else None),
        ("first", None if scan.first_below is None else {"$lt": scan.first_below}),
        ("last", None if scan.last_above is None else {"$gt": scan.last_above}),
    )
    return which | {name: test for name, test in tests if test is not None}


def row_of(line: k.Line, op: str) -> Doc:
    """Return a line's fields; `op` names the commit that appended it."""
    return {"seq": line.seq, "w": op, **{name: getattr(line, name) for name in _LINE}}


def line_of(session: str, row: Doc) -> k.Line:
    """Return the line of a row. A missing field becomes an empty text."""
    return k.Line(session, row["seq"], **{name: row.get(name, "") for name in _LINE})


def field_of(seq: int) -> str:
    return f"e{seq}"


def weight(row: Doc) -> int:
    return _ROW_BYTES + len(row.get("text", "").encode()) + len(row.get("body", "").encode())


def is_away(row: Doc) -> bool:
    """Return whether a head's row has no content, because the line is in separate documents."""
    return "text" not in row


def reference(row: Doc) -> Doc:
    """Return a row without its content, for a head whose line is in separate documents."""
    return {name: value for name, value in row.items() if name not in ("text", "body")}


def ids_of(log: str, row: Doc) -> list[str]:
    """Return the `_id`s of a row's document and of the documents of its pieces."""
    own = f"{log}.{row['seq']}.{row['w']}"
    return [own, *(f"{own}.{part}" for part in range(row.get("pieces", 0)))]


def in_documents(log: str, session: str, generation: int, row: Doc) -> list[Doc]:
    """Return a row as one document, or a large row as several documents, with `pieces` set."""
    place = {"log": log, "session": session, "g": generation}
    if len(row["text"]) + len(row["body"]) <= _PIECE:
        return [{"_id": ids_of(log, row)[0], **place, **row}]
    encoded = json.dumps([row["text"], row["body"]], ensure_ascii=False)
    parts = [encoded[at : at + _PIECE] for at in range(0, len(encoded), _PIECE)]
    row["pieces"] = len(parts)
    own, *ids = ids_of(log, row)
    place |= {"seq": row["seq"], "w": row["w"]}
    pieces = zip(ids, parts, strict=True)
    return [
        {"_id": own, **place, **row, "text": "", "body": ""},
        *({"_id": name, **place, "part": n, "piece": it} for n, (name, it) in enumerate(pieces)),
    ]


def put_together(docs: Sequence[Doc]) -> list[Doc]:
    """Return rows from their documents, with pieces joined. Rows that lack pieces are left out."""
    pieces: dict[tuple[int, str], dict[int, str]] = {}
    for doc in docs:
        if "part" in doc:
            pieces.setdefault((doc["seq"], doc["w"]), {})[doc["part"]] = doc["piece"]
    rows: list[Doc] = []
    for doc in docs:
        if doc.get("pieces"):
            parts: Mapping[int, str] = pieces.get((doc["seq"], doc["w"]), {})
            if len(parts) == doc["pieces"]:
                text, body = json.loads("".join(parts[part] for part in sorted(parts)))
                rows.append({**doc, "text": text, "body": body})
        elif "part" not in doc:
            rows.append(doc)
    return rows


class HeadChange:
    """The writes of a batch about one session, as one update of the session's head.

    Attributes:
        which: The filter that the head must match.
        cut_at: The seq after which the log is cut before the append; None for no cut.
        since: Idempotency keys before this time are deleted afterwards; None for no deletion.
        log: The log's random name; None if the head was not read.
        generation: The log's generation after the change, if `log` is not None.
    """

    def __init__(self, batch: k.Batch, head: k.DocId, op: str, now: int) -> None:
        self.head, self.op = head, op
        self.begins = begins_session(batch, head)
        own = [condition for condition in batch.conditions if session_of(condition) == head.id]
        self.which = {"live": 1, **filter_of(own, now)}
        self.set: Doc = {}
        self.rows: list[Doc] = []
        self.cut_at: int | None = None
        self.since: int | None = None
        self.log: str | None = token() if self.begins else None
        self.generation = 0
        self._mins: Doc = {}
        self._begin = self._lighter = self._total = 0
        self._unset: list[str] = []
        for write in batch.writes:
            match write:
                case k.Put(document) if document.key == head:
                    self.set |= values_of(document)
                case k.Put(document) if document.collection == k.KEY:
                    oldest = min(self._mins.get("oldest_key", document.first), document.first)
                    self._mins["oldest_key"] = oldest
                case k.Append(lines):
                    self.rows += [row_of(line, op) for line in lines]
                case k.Truncate(_, after, total):
                    self.cut_at, self._total = max(after, 0), total
                case k.Expire(_, upto):
                    self._begin = upto
                case k.DeleteWhere(scan) if is_upkeep(scan):
                    self.since = scan.first_below
                case k.Wake(ids, micros) if head in ids:
                    self._mins["due"] = now + micros
                case k.Due() | k.Hold() if write.id == head:
                    self.set |= timing_of(write, now)
        self.is_heavy = sum(map(weight, self.rows)) > HEAVY
        if self.rows:
            self.set |= {"end": self.rows[-1]["seq"], "total": self.rows[-1]["total"]}

    def truncate(self, doc: Doc) -> None:
        """Add the cut of the log. `doc` is the head."""
        self.log, self.generation = doc["log"], doc["g"]
        after = self.cut_at or 0
        if after >= doc["end"]:
            return
        self.generation += 1
        gone = [row for row in doc["lines"].values() if row["seq"] > after]
        self._lighter = sum(map(weight, gone))
        self._unset = [field_of(row["seq"]) for row in gone]
        cut = {"end": after, "below": self.generation}
        spilled = min(doc["spilled"], after)
        self.set = {"end": after, "total": self._total, **self.set}
        self.set |= {"g": self.generation, "spilled": spilled, "cut": cut}

    def update(self) -> Doc:
        lines = {f"lines.{field_of(row['seq'])}": row for row in self.rows}
        unset = {f"lines.{name}": "" for name in self._unset if f"lines.{name}" not in lines}
        heavier = sum(map(weight, self.rows)) - self._lighter
        change = {
            "$set": {**self.set, **lines},
            "$unset": unset,
            "$min": self._mins,
            "$max": {"begin": self._begin} if self._begin else {},
            "$inc": {"weight": heavier} if heavier else {},
        }
        return {name: values for name, values in change.items() if values} | marked(self.op)

    def first_state(self) -> Doc:
        begin = self.rows[0]["seq"] - 1 if self.rows else 0
        return {
            **{"live": 1, "holder": "", "until": 0, "due": NEVER, "log": self.log, "g": 0},
            **{"end": 0, "total": 0, "begin": begin, "low": begin + 1, "spilled": 0, "ops": {}},
            **self._mins,
            **self.set,
            "weight": sum(map(weight, self.rows)),
            "lines": {field_of(row["seq"]): row for row in self.rows},
            "marks": [self.op],
        }


def timing_of(write: k.Write, now: int) -> Doc:
    match write:
        case k.Due(_, micros):
            return {"due": NEVER if micros is None else now + micros}
        case k.Hold(_, holder, micros):
            return {"holder": holder, "until": now + micros if holder else 0}
    return {}


def is_upkeep(scan: k.Scan) -> bool:
    """Return whether a scan selects old idempotency keys, which are deleted after the batch."""
    return scan.collection == k.KEY and scan.first_below is not None


def session_of(condition: k.Condition) -> str | None:
    if isinstance(condition, k.LogEndsAt):
        return condition.session
    return condition.id.id if condition.id.collection == k.HEAD else None


def head_of(batch: k.Batch) -> k.DocId | None:
    """Return the head that a batch changes, or else the head in its conditions, or else None."""
    changed = {at for write in batch.writes for at in written(write)}
    for write in batch.writes:
        match write:
            case k.Append(lines):
                changed |= {k.head_id(line.session) for line in lines}
            case k.Truncate(session, _) | k.Expire(session, _):
                changed.add(k.head_id(session))
    heads = [at for at in changed if at.collection == k.HEAD]
    if len(heads) > 1:
        raise StoreError("A batch in MongoDB changes one session at most.")
    if heads:
        return heads[0]
    return next((k.head_id(name) for it in batch.conditions if (name := session_of(it))), None)


def begins_session(batch: k.Batch, head: k.DocId | None) -> bool:
    return any(isinstance(each, k.Missing) and each.id == head for each in batch.conditions)


def target_of(batch: k.Batch, effects: Effects) -> k.DocId | None:
    """Return the only document of a batch; None for several, or if a condition names a log."""
    ids, logs = named(batch.conditions)
    ids |= {at for at, _ in effects.values()}
    ids |= {at for write in batch.writes for at in written(write)}
    return next(iter(ids)) if len(ids) == 1 and not logs else None
