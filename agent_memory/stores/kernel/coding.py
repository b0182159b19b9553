"""Encodes heads, entries, idempotency keys and records for a kernel, and decodes them."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from operator import index
from typing import Any

from agent_memory.core.damage import Damage
from agent_memory.core.idempotency import KeyRecord
from agent_memory.core.limits import UNREADABLE
from agent_memory.core.messages import Message, compact_json
from agent_memory.core.records import Entry, Head, Lag, Record, Scope, Summary
from agent_memory.errors import Damaged, StoreError, Undecryptable
from agent_memory.stores.kernel import contract as k

MARK = "sealed.1."
"""The beginning of every ciphertext, with the version of the format."""

_MIX = 0x9E3779B97F4A7C15
_IN_BODY = ("system", "system_at", "summary")
_MOST_SHOWN = 2_000  # maximum characters in `text` of a line that also has a `body`
_USER = "user:"
CURSORS = '"cursors":'
"""Marks the cursors, which are the last field in the `about` of a head's document."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def to_micros(moment: datetime) -> int:
    return (moment - _EPOCH) // _MICROSECOND


def from_micros(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)


def now_micros() -> int:
    return int(time.time() * 1e6)


def latest_micros(now: int) -> int:
    """Return the latest end of a lease that is valid at the time `now`, in microseconds."""
    return now + micros_of(k.LONGEST_LEASE_SECONDS)


def micros_of(seconds: float) -> int:
    return int(seconds * 1e6)


def head_fields(head: Head) -> dict[str, Any]:
    """Return a head's fields as JSON values, without identity, tail, version and `deleting`."""
    system, summary = head.system, head.summary
    return {
        "expired": head.expired,
        "start": head.start,
        "start_total": head.start_total,
        "pinned": list(head.pinned),
        "pinned_tokens": head.pinned_tokens,
        "system": None if system is None else system.to_json(),
        "system_at": 0 if system is None else to_micros(system.created_at),
        "system_tokens": head.system_tokens,
        "summary": None if summary is None else asdict(summary),
        "cursors": head.cursors,
    }


def head_from(session_id: str, fields: Mapping[str, Any]) -> Head:
    """Return a head from its fields, including the fields that `head_fields` leaves out.

    Times are in microseconds. If a field is missing or invalid, raise `Damaged` with a head that
    has the readable fields.
    """
    values = {**fields, "system": (fields.get("system"), fields.get("system_at"))}
    parts: dict[str, Any] = {}
    broken: list[str] = []
    for name, decode in _DECODERS.items():
        try:
            parts[name] = decode(values.get(name))
        except UNREADABLE:
            cursors = name == "cursors"
            parts[name] = _blocks(values.get(name)) if cursors else getattr(_NEW, name)
            broken.append(name)
    head = Head(session_id=session_id, **parts)
    if broken:
        raise Damage("session", session_id, broken=tuple(broken), head=head).error()
    return head


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    raise TypeError


def _summary(value: Any) -> Summary | None:
    if value is None:
        return None
    summary = Summary(**value)
    _as_text(summary.text)
    index(summary.tokens)
    index(summary.upto)
    return summary


def _system(value: Any) -> Message | None:
    text, at = value
    return None if text is None else Message.from_json(_as_text(text), from_micros(at))


def _blocks(value: Any) -> dict[str, int]:
    """Return the blocks that damaged cursors name. Each cursor is 0, because the value is lost."""
    return dict.fromkeys(_NAMED.findall(value) if isinstance(value, str) else (), 0)


_NAMED = re.compile(r'"([a-z][a-z0-9_]*)":')
_NEW = Head("", None, created_at=_EPOCH)
"""The values of this head replace unreadable fields of other heads, except `cursors`."""

_NUMBERS = ("end", "total", "version", "expired", "start", "start_total")
_DECODERS: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys((*_NUMBERS, "pinned_tokens", "system_tokens"), index),
    "user_id": lambda value: None if value is None else _as_text(value),
    "pinned": lambda value: tuple(map(index, value)),
    "system": _system,
    "summary": _summary,
    "cursors": lambda value: {name: index(at) for name, at in value.items()},
    "deleting": lambda value: bool(index(value)),
    "created_at": lambda value: from_micros(index(value)),
}


def stamp_of(head: Head) -> int:
    """Return the version of a head's document. A re-created session gets a new version."""
    return (to_micros(head.created_at) ^ (head.version * _MIX)) & (2**62 - 1)


def head_document(head: Head) -> k.Document:
    about: dict[str, Any] = {"deleting": head.deleting, **head_fields(head)}
    body = {name: about.pop(name) for name in _IN_BODY}
    return k.Document(
        *(k.HEAD, head.session_id, Scope(head.user_id, head.session_id).owner),
        first=to_micros(head.created_at),
        last=head.version,
        version=stamp_of(head),
        about=compact_json(about),
        body=compact_json(body) if body["system"] or body["summary"] else "",
    )


def head_of(document: k.Document, tail: k.Tail | None = None) -> Head:
    """Return the head in a document, with `tail`. Raise `Damaged` if the head is damaged."""
    if isinstance(document.body, k.Unreadable):
        raise _of_session(document.body.error, document, tail)
    about = _about(document)
    about.update(dict.fromkeys(_IN_BODY) if not document.body else _body(document))
    end, total = tail or document.tail
    about |= {"user_id": _user_of(document), "version": document.last}
    about |= {"created_at": document.first, "end": end, "total": total}
    return head_from(document.id, about)


def _of_session(error: StoreError, document: k.Document, tail: k.Tail | None) -> StoreError:
    """Add the session and the readable part of its head to a `Damaged` error."""
    if isinstance(error, Damaged):
        head = head_of(document._replace(body=""), tail)
        error.damage = Damage("session", document.id, head=head)
    return error


def _about(document: k.Document) -> dict[str, Any]:
    try:
        return dict(json.loads(document.about))
    except UNREADABLE:
        # the names of the blocks may still be readable
        return {"cursors": str(document.about).partition(CURSORS)[2], "deleting": 0}


def _body(document: k.Document) -> dict[str, Any]:
    try:
        return {**dict.fromkeys(_IN_BODY), **json.loads(document.body)}
    except UNREADABLE:
        return {"system": 0, "summary": "broken"}


def _user_of(document: k.Document) -> str | int | None:
    """Return the user, None if there is no user, or a number if the owner is unreadable."""
    if isinstance(document.owner, str) and document.owner.startswith(_USER):
        return document.owner.removeprefix(_USER)
    return None if document.owner == f"session:{document.id}" else 0


def is_deleting(document: k.Document) -> bool:
    return bool(_about(document).get("deleting"))


def lag_of(head: k.Document, block: str) -> Lag | None:
    """Return a block's lag in a session. Raise `Damaged` if the head is damaged.

    Return None if the block has absorbed the session completely, or the session is being deleted.
    """
    try:
        about = json.loads(head.about)
        after = max(index(about["cursors"].get(block, 0)), index(about["expired"]))
        if about["deleting"] or after >= head.tail.seq:
            return None
        end, total = head.tail
        return Lag(head.id, after, end, index(total), index(head.last), from_micros(head.first))
    except UNREADABLE as error:
        raise Damage("session", head.id).error() from error


def are_not_absorbed(heads: Iterable[k.Document | None], block: str) -> list[k.Document]:
    """Return the heads with entries after a block's cursor, and all unreadable heads.

    The function searches the heads' JSON, because decoding each head would take longer than a
    vector search.
    """
    name = json.dumps(block)

    def is_absorbed(about: str, end: int) -> bool:
        mark = f"{name}:{end}"
        at = about.rfind(mark)
        return at > about.rfind(CURSORS) and about[at + len(mark) :][:1] in ("}", ",")

    return [doc for doc in heads if doc is not None and not is_absorbed(doc.about, doc.tail[0])]


def line_of(
    session_id: str, seq: int, message: Message, tokens: int, total: int, encoding: str
) -> k.Line:
    at, plain = to_micros(message.created_at), message.plain
    if plain is not None:
        role = message.role or ""
        return k.Line(session_id, seq, role, plain, at, tokens, total, encoding, "")
    shown = message.text()[:_MOST_SHOWN].replace("\0", "").encode(errors="ignore").decode()
    body = message.to_json()
    return k.Line(session_id, seq, message.role or "", shown, at, tokens, total, encoding, body)


def line_of_entry(entry: Entry) -> k.Line:
    """Return the line of an entry, with the time of the entry's message."""
    return line_of(
        entry.session_id, entry.seq, entry.message, entry.tokens, entry.total, entry.encoding
    )


def entry_of(line: k.Line) -> Entry:
    """Return the entry of a line. Raise `Damaged` if the line is damaged."""
    session, seq, role, text, created_at, tokens, total, encoding, body = line
    if isinstance(body, k.Unreadable):
        raise body.error
    try:
        at = from_micros(created_at)
        message = Message.from_json(body, at) if body else Message.of_plain(role, text, at)
        return Entry(session, seq, message, index(tokens), index(total), encoding, at)
    except UNREADABLE as error:
        raise Damage("message", session, seq).error() from error


def key_id(session_id: str, name: str) -> k.DocId:
    return k.DocId(k.KEY, f"{name}:{session_id}")


def key_document(session_id: str, key: KeyRecord) -> k.Document:
    """Return the document of an idempotency key. `first` is the key's time, `last` its seq."""
    at = to_micros(key.at)
    body = compact_json([key.name, key.digest, key.end, key.total])
    version = (at ^ (key.end * _MIX)) & (2**62 - 1)
    return k.Document(
        *key_id(session_id, key.name), "", session_id, at, key.seq, version, body=body
    )


def key_of(document: k.Document) -> KeyRecord:
    name, digest, end, total = json.loads(_text_of(document))
    return KeyRecord(name, digest, document.last, end, total, from_micros(document.first))


def _text_of(document: k.Document) -> str:
    if isinstance(document.body, k.Unreadable):
        raise document.body.error
    return document.body


def record_body(record: Record) -> str:
    fields = {"text": record.text, "sources": record.sources, "metadata": record.metadata}
    return compact_json(fields)


def record_document(collection: str, record: Record, version: int) -> k.Document:
    return k.Document(
        *(collection, record.id, record.owner, record.session_id, record.first, record.last),
        version=version,
        about=str(to_micros(record.created_at)),
        body=record_body(record),
    )


class _Encrypted(dict[str, Any]):
    """The metadata of a record that is read without the keys. A lookup raises `Undecryptable`.

    The record itself can be read, because a process without keys must be able to delete it.
    """

    def __init__(self, block: str) -> None:
        super().__init__()
        self._block = block

    def __missing__(self, name: str) -> Any:
        raise Undecryptable(
            f"The records of {self._block!r} are encrypted. Give the memory its keys: `encryption`."
        )

    def get(self, name: str, default: Any = None) -> Any:
        return self[name]

    def __contains__(self, name: Any) -> bool:
        return bool(self[name])


def record_from(document: k.Document) -> Record:
    """Return the record of a document. Raise `Damaged` if the record is damaged."""
    text = _text_of(document)
    is_fact, block = document.collection.startswith(k.FACT), document.collection.partition(":")[2]
    try:
        body = json.loads(text)
        metadata = dict(body["metadata"])
        if is_fact and not metadata and body["text"].startswith(MARK):
            metadata = _Encrypted(block)
        return Record(
            id=_as_text(document.id),
            owner=_as_text(document.owner),
            session_id=_as_text(document.session),
            first=index(document.first),
            last=index(document.last),
            text=_as_text(body["text"]),
            sources=tuple(body["sources"]),
            created_at=from_micros(int(document.about)),
            metadata=metadata,
        )
    except UNREADABLE as error:
        first = document.first if isinstance(document.first, int) else 0
        place = (str(document.session), first, block, str(document.id))
        raise Damage("fact" if is_fact else "vector", *place).error() from error


def mismatch(block: str, stored: tuple[int, str], embedding: tuple[int, str]) -> str:
    """Return the error message for vectors of another dimension or embedding model."""
    return (
        f"Block {block!r} holds vectors of {stored[1]!r} with {stored[0]} dimensions, and the "
        f"embedder is {embedding[1]!r} with {embedding[0]}. If you have changed the embedder, "
        f"rebuild the block: `agent-memory replay {block}`, or "
        f"agent_memory.operations.rebuild(config, {block!r}). If the block was rebuilt already, "
        "restart this process with the new settings."
    )
