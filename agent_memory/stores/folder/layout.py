"""Converts data to and from the lines of files. A line is one JSON object. Pure."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from hashlib import sha256
from operator import index
from typing import Any, NamedTuple
from urllib.parse import quote

from agent_memory.core.idempotency import KeyRecord
from agent_memory.core.limits import UNREADABLE
from agent_memory.core.messages import Message, compact_json
from agent_memory.core.records import Entry, Head, Record
from agent_memory.errors import Damaged
from agent_memory.stores.kernel import coding
from agent_memory.stores.kernel import contract as k
from agent_memory.stores.kernel.vectors import embedding_of

_LONGEST = 80
_MOST = 2**63 - 1

Fields = dict[str, Any]
Value = k.Line | k.Document


def file_name(name: str) -> str:
    """Return the file name of a session or block: its escaped name, and digits of the name's hash.

    The digits make file names differ on file systems that ignore case.
    """
    digits = sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:10]
    shown = quote(name, safe=" @+=,", errors="replace").lstrip(".")[:_LONGEST]
    return f"{shown}-{digits}.jsonl"


def line_of(fields: Fields) -> str:
    return json.dumps(fields, ensure_ascii=False, separators=(", ", ": "))


def line_of_head(document: k.Document) -> str:
    """Return the first line of a session's file, from the head's document with the log's end."""
    head = coding.head_of(document)
    fields = coding.head_fields(head)
    if fields["system"] is not None:
        fields["system"] = json.loads(fields["system"])
    return line_of(
        {
            "session": head.session_id,
            "user": head.user_id,
            "created_at": head.created_at.isoformat(),
            "version": head.version,
            "deleting": head.deleting,
            "end": head.end,
            "total": head.total,
            **fields,
        }
    )


def head_in(fields: Fields, lines: Sequence[k.Line]) -> Head:
    """Return the head in a session's first line. Check that `lines` are all unexpired messages."""
    system = fields["system"]
    values = {
        **fields,
        "system": None if system is None else _message_json(system),
        "user_id": fields["user"],
        "created_at": coding.to_micros(_moment(fields, "created_at")),
    }
    try:
        head = coding.head_from(_text(fields, "session"), values)
    except Damaged as error:
        broken = ", ".join(error.damage.broken if error.damage else ())
        raise ValueError(f"its first line is damaged ({broken})") from error
    counts = (head.expired, head.start, head.start_total, head.total, head.pinned_tokens,
              head.system_tokens, head.version, *head.pinned, *head.cursors.values())  # fmt: skip
    if min(counts) < 0 or max(counts) > _MOST:
        raise ValueError("its first line has a number that is out of range")
    for seq, line in enumerate(lines, head.expired + 1):
        if line.seq != seq:
            raise ValueError(f"it has message #{line.seq} in place of #{seq}")
    last = head.expired + len(lines)
    if last != head.end:
        raise ValueError(f"its last message is #{last}, but should be #{head.end}")
    return head


def line_of_embedding(document: k.Document) -> str:
    """Return the first line of a file of vectors."""
    dimension, model = embedding_of(document)
    block = {"block": document.id}
    return line_of({**block, "dimension": dimension, "model": model})


def line_of_value(value: Value) -> str:
    """Return the line of a message, an idempotency key, a record, a catalog or a segment."""
    if isinstance(value, k.Line):
        return _line_of_message(coding.entry_of(value))
    owned = {"owner": value.owner}
    match value.collection.partition(":")[0]:
        case "key":
            key = coding.key_of(value)
            fields = [key.name, key.digest, key.seq, key.end, key.total, coding.to_micros(key.at)]
            return line_of({"key": fields})
        case "fact":
            return _line_of_record(coding.record_from(value))
        case "vector":
            return _line_of_record(coding.record_from(value), number=value.version)
        case "catalog":
            catalog = json.loads(value.body)
            return line_of({**owned, "version": value.version, "catalog": catalog})
    features = base64.b64encode(value.data).decode("ascii")
    return line_of({**owned, "segment": value.id.partition(":")[0], "features": features})


def value_of(kind: str, name: str, number: int, fields: Fields) -> Value:
    """Return the value in a line of the file of a session or block. See `line_of_value`."""
    if kind == "sessions":
        return _message_of(name, number, fields)
    if kind == "records":
        record = _record_of(fields)
        return coding.record_document(f"{k.FACT}{name}", record, record.last)
    if "catalog" in fields:
        owner, body = _text(fields, "owner"), compact_json(fields["catalog"])
        version = _count(fields, "version")
        return k.Document(f"{k.CATALOG}{name}", owner, owner, version=version, body=body)
    if "segment" in fields:
        owner, data = _text(fields, "owner"), b""
        with suppress(ValueError, TypeError, KeyError):  # then the segment counts as damaged
            data = base64.b64decode(fields["features"], validate=True)
        segment = int(_text(fields, "segment"), 16)
        return k.Document(f"{k.SEGMENT}{name}", f"{segment:x}:{owner}", owner, data=data)
    return coding.record_document(f"{k.VECTOR}{name}", _record_of(fields), _count(fields, "number"))


def _line_of_message(entry: Entry) -> str:
    return line_of(
        {
            "seq": entry.seq,
            "at": entry.created_at.isoformat(),
            "message": json.loads(entry.message.to_json()),
            "tokens": entry.tokens,
            "total": entry.total,
            "encoding": entry.encoding,
        }
    )


def _message_of(session_id: str, number: int, fields: Fields) -> k.Line | k.Document:
    """Return the message or the idempotency key in a line of a session's file."""
    if "seq" in fields:
        at = _moment(fields, "at")
        message = Message.from_json(_message_json(fields["message"]), at)
        seq, tokens, total = (_count(fields, name) for name in ("seq", "tokens", "total"))
        encoding = _text(fields, "encoding")
        return coding.line_of_entry(Entry(session_id, seq, message, tokens, total, encoding, at))
    if "key" not in fields:
        raise ValueError(f"line {number} is neither a message nor a key")
    name, digest, *counts = fields["key"]
    seq, end, total, micros = map(index, counts)
    if not isinstance(name, str) or not isinstance(digest, str):
        raise TypeError("a key is not a text")
    return coding.key_document(
        session_id, KeyRecord(name, digest, seq, end, total, coding.from_micros(micros))
    )


def name_of(kind: str, first: Fields) -> str:
    """Return the session or block that a file's first line names."""
    return _text(first, "session" if kind == "sessions" else "block")


def opened_of(first: Fields) -> tuple[int, str]:
    return _count(first, "dimension"), _text(first, "model")


class State(NamedTuple):
    """Due times, leases and locks. Times are in microseconds since 1970."""

    # for each session its creation time, its due time, and its lease's holder and end
    sessions: Mapping[str, tuple[int, int | None, str, int]] = {}
    locks: Mapping[str, tuple[str, int]] = {}  # the holder and the end of each lock


def state_of(data: bytes) -> State:
    """Return the state in a file, or an empty state if the file is damaged."""
    try:
        state = json.loads(data)
        sessions, locks = state["sessions"], state["locks"]
        for begun, due, holder, until in sessions.values():
            if [*map(type, (begun, due or 0, holder, until))] != [int, int, str, int]:
                raise TypeError
        for holder, until in locks.values():
            if [*map(type, (holder, until))] != [str, int]:
                raise TypeError
    except UNREADABLE:  # with an empty state, every session is due
        return State()
    return State(sessions, locks)


def _text(fields: Fields, name: str) -> str:
    value = fields[name]
    if not isinstance(value, str):
        raise TypeError(f"`{name}` is not a text")
    return value


def _count(fields: Fields, name: str) -> int:
    value = fields[name]
    if type(value) is not int or not 0 <= value <= _MOST:
        raise TypeError(f"`{name}` is not a whole number of at least 0")
    return value


def _moment(fields: Fields, name: str) -> datetime:
    at = datetime.fromisoformat(_text(fields, name))
    if at.utcoffset() is None:
        raise ValueError(f"`{name}` has no time zone")
    return at


def _message_json(fields: object) -> str:
    if not isinstance(fields, dict):
        raise TypeError("`message` is not an object")
    Message.of(fields)
    return json.dumps(fields)


def _line_of_record(record: Record, **more: int) -> str:
    return line_of(
        {
            "text": record.text,
            "at": record.created_at.isoformat(),
            "metadata": record.metadata,
            "session": record.session_id,
            "first": record.first,
            "last": record.last,
            "sources": list(record.sources),
            "owner": record.owner,
            "id": record.id,
            **more,
        }
    )


def _record_of(fields: Fields) -> Record:
    if not isinstance(fields["metadata"], dict):
        raise TypeError("`metadata` is not an object")
    return Record(
        id=_text(fields, "id"),
        owner=_text(fields, "owner"),
        session_id=_text(fields, "session"),
        first=_count(fields, "first"),
        last=_count(fields, "last"),
        text=_text(fields, "text"),
        sources=tuple(map(index, fields["sources"])),
        created_at=_moment(fields, "at"),
        metadata=fields["metadata"],
    )


def bytes_of(lines: Iterable[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogatepass")


def lines_in(data: bytes) -> Iterator[tuple[str, Fields]]:
    """Yield a file's lines with their fields. Raise ValueError for a line without a JSON object."""
    for number, line in enumerate(data.decode("utf-8", "surrogatepass").split("\n"), 1):
        if line.strip():
            try:
                fields = json.loads(line)
            except ValueError as error:
                raise ValueError(f"line {number} is not JSON: {error}") from None
            if not isinstance(fields, dict):
                raise ValueError(f"line {number} is not a JSON object")
            yield line, fields


def first_in(data: bytes, kind: str) -> str | None:
    """Return the session or block that a damaged file names, or None."""
    named = "session" if kind == "sessions" else "block"
    names = (line.get(named) for line in _readable_lines(data))
    return next((name for name in names if isinstance(name, str)), None)


def owners_in(data: bytes) -> frozenset[str]:
    """Return the owners (as in `Scope.owner`) and blocks that a file of this library names."""
    owners: set[str] = set()
    for line in _readable_lines(data):
        session, user, owner, block = map(line.get, ("session", "user", "owner", "block"))
        owners |= {f"session:{session}"} if isinstance(session, str) else set()
        owners |= {f"user:{user}"} if isinstance(user, str) else set()
        owners |= {name for name in (owner, block) if isinstance(name, str)}
    return frozenset(owners)


def _readable_lines(data: bytes) -> Iterator[Fields]:
    for line in data.decode("utf-8", "replace").split("\n"):
        with suppress(*UNREADABLE):
            fields = json.loads(line)
            if isinstance(fields, dict):
                yield fields
