"""Documents, heads and lines of the kernel as MongoDB stores them. Pure.

A document of the kernel is one of the collection `agent_memory_documents`. A head also has the end
of its session's log and the newest lines, so that one command appends. The other lines are in
`agent_memory_messages`.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from agent_memory.stores.coding import latest_micros
from agent_memory.stores.kernel.contract import (
    Condition,
    DocId,
    Document,
    Exists,
    Free,
    HeldBy,
    Line,
    LogEndsAt,
    Missing,
    Scan,
    Tail,
    VersionIs,
)
from agent_memory.stores.kernel.rules import State

Doc = dict[str, Any]

NEVER = 2**62
"""The due time of a document that waits for nothing."""

WITHOUT_LINES: Doc = {"lines": 0, "put": 0}
WITHOUT_BODIES: Doc = {**WITHOUT_LINES, "body": 0, "data": 0}

_FIELDS = ("owner", "session", "first", "last", "version", "about", "body", "data")
_LINE = ("role", "text", "created_at", "tokens", "total", "encoding", "body")
_MOST_MARKS = 16
_ROW_BYTES = 256  # a line without its text, about
_PIECE = 2**21  # characters; a document may have 16 MiB, and a character has up to four bytes


def token() -> str:
    """Return a name that nobody else has."""
    return secrets.token_hex(8)


def marked(op: str) -> Doc:
    """Return the part of an update that leaves the name of a change in the document."""
    return {"$push": {"marks": {"$each": [op], "$slice": -_MOST_MARKS}}}


def place_of(namespace: str, at: DocId) -> str:
    """Return the `_id` of a document."""
    return f"{quote(namespace, safe='')}/{quote(at.collection, safe='')}/{at.id}"


def empty(namespace: str, at: DocId) -> Doc:
    """Return the fields of a document that is not there yet, apart from its `_id`."""
    return {"ns": namespace, "c": at.collection, "id": at.id, "live": 0, "holder": "", "until": 0}


def values_of(document: Document) -> Doc:
    """Return the fields that `Put` writes."""
    values = {name: getattr(document, name) for name in _FIELDS}
    return values | {"data": document.data or None}


def document_of(doc: Doc, *, tails: bool = False, bodies: bool = True) -> Document:
    """Return the document that a MongoDB document holds."""
    values = {name: doc[name] for name in _FIELDS if doc.get(name) is not None}
    if not bodies:
        values |= {"body": "", "data": b""}
    tail = Tail(doc.get("end", 0), doc.get("total", 0)) if tails else Tail()
    return Document(doc["c"], doc["id"], **values, tail=tail)


def state_of(doc: Doc | None) -> State | None:
    """Return what conditions read; None for a document that is not there."""
    if doc is None or not doc["live"]:
        return None
    return State(doc["version"], doc["holder"], doc["until"], doc.get("due"))


def filters_of(conditions: Sequence[Condition], now: int) -> list[Doc]:
    """Return conditions on one document as filters of which one has to match.

    They are tried one after the other. nx-27017 takes `$or` beside `_id` for more than it says.
    """
    which: Doc = {}
    choices: list[Doc] = [{}]
    for condition in conditions:
        match condition:
            case VersionIs(_, version):
                which |= {"live": 1, "version": version}
            case HeldBy(_, holder):
                which |= {"live": 1, "holder": holder}
            case LogEndsAt(_, seq):
                which |= {"end": seq}
            case Exists():
                which |= {"live": 1}
            case Missing():
                which |= {"live": 0}
            case Free(_, holder):
                choices = [*free(now), {"holder": holder}]
    return [which | choice for choice in choices]


def free(now: int) -> list[Doc]:
    """Return the filters of documents that anybody may hold."""
    return [{"until": {"$lte": now}}, {"until": {"$gt": latest_micros(now)}}]


def selection(namespace: str, scan: Scan) -> Doc:
    """Return a scan as a filter."""
    which: Doc = {"ns": namespace, "c": scan.collection, "live": 1}
    tests: Iterable[tuple[str, Any]] = (
        ("owner", scan.owner),
        ("session", scan.session),
        ("id", {"$gt": scan.after} if scan.after else None),
        ("first", None if scan.first_below is None else {"$lt": scan.first_below}),
        ("last", None if scan.last_above is None else {"$gt": scan.last_above}),
    )
    return which | {name: test for name, test in tests if test is not None}


def row_of(line: Line, op: str) -> Doc:
    """Return a line's fields; `op` names the commit that appended it."""
    return {"seq": line.seq, "w": op, **{name: getattr(line, name) for name in _LINE}}


def line_of(session: str, row: Doc) -> Line:
    """Return the line of a row, as far as it has what belongs there."""
    return Line(session, row["seq"], **{name: row.get(name, "") for name in _LINE})


def field_of(seq: int) -> str:
    """Return the name of a line among those of its head."""
    return f"e{seq}"


def weight(row: Doc) -> int:
    """Return about how many bytes a row takes in a head."""
    return _ROW_BYTES + len(row.get("text", "").encode()) + len(row.get("body", "").encode())


def is_away(row: Doc) -> bool:
    """Return whether a head's row only refers to documents."""
    return "text" not in row


def reference(row: Doc) -> Doc:
    """Return what a head says of a row that is in documents of its own."""
    return {name: value for name, value in row.items() if name not in ("text", "body")}


def ids_of(log: str, row: Doc) -> list[str]:
    """Return the ids of a row's document and of its pieces."""
    own = f"{log}.{row['seq']}.{row['w']}"
    return [own, *(f"{own}.{part}" for part in range(row.get("pieces", 0)))]


def in_documents(log: str, session: str, generation: int, row: Doc) -> list[Doc]:
    """Return the document of a row, and those of its pieces if one cannot hold it."""
    place = {"log": log, "session": session, "g": generation}
    if len(row["text"]) + len(row["body"]) <= _PIECE:
        return [{"_id": ids_of(log, row)[0], **place, **row}]
    whole = json.dumps([row["text"], row["body"]], ensure_ascii=False)
    parts = [whole[at : at + _PIECE] for at in range(0, len(whole), _PIECE)]
    row["pieces"] = len(parts)
    own, *ids = ids_of(log, row)
    place |= {"seq": row["seq"], "w": row["w"]}
    pieces = zip(ids, parts, strict=True)
    return [
        {"_id": own, **place, **row, "text": "", "body": ""},
        *({"_id": name, **place, "part": n, "piece": it} for n, (name, it) in enumerate(pieces)),
    ]


def put_together(docs: Sequence[Doc]) -> list[Doc]:
    """Return the rows of documents, each with its pieces; without those that lack some."""
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
