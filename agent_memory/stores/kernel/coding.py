"""Heads, entries, idempotency keys and records as a kernel stores them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from operator import index
from typing import Any, Literal

from agent_memory.core.damage import Damage
from agent_memory.core.idempotency import KeptKey
from agent_memory.core.limits import UNREADABLE
from agent_memory.core.messages import Message, compact_json
from agent_memory.core.records import Entry, Head, Lag, Record, Scope
from agent_memory.stores.coding import (
    as_text,
    from_micros,
    head_fields,
    head_from,
    record_body,
    to_micros,
)
from agent_memory.stores.kernel.contract import DocId, Document, Line, Tail

HEAD, KEY = "head", "key"
_MIX = 0x9E3779B97F4A7C15
_IN_BODY = ("system", "system_at", "summary")
_MOST_SHOWN = 2_000  # characters
_USER = "user:"


def head_id(session_id: str) -> DocId:
    """The document of a session's head."""
    return DocId(HEAD, session_id)


def stamp_of(head: Head) -> int:
    """The version of a head's document: a session that begins anew under an id has another."""
    return (to_micros(head.created_at) ^ (head.version * _MIX)) & (2**62 - 1)


def head_document(head: Head) -> Document:
    """The document of a head."""
    about: dict[str, Any] = {"deleting": head.deleting, **head_fields(head)}
    body = {name: about.pop(name) for name in _IN_BODY}
    return Document(
        *(HEAD, head.session_id, Scope(head.user_id, head.session_id).owner),
        first=to_micros(head.created_at),
        last=head.version,
        version=stamp_of(head),
        about=compact_json(about),
        body=compact_json(body) if body["system"] or body["summary"] else "",
    )


def head_of(one: Document, tail: Tail | None = None) -> Head:
    """The head of a document, with an end of its log.

    Raises:
        Damaged: It is not what was written.
    """
    about = _about(one)
    about.update(dict.fromkeys(_IN_BODY) if not one.body else _body(one))
    end, total = tail or one.tail
    return head_from(
        about,
        session_id=one.id,
        user_id=_user_of(one),
        end=end,
        total=total,
        version=one.last,
        deleting=about.get("deleting"),
        begun=one.first,
    )


def _about(one: Document) -> dict[str, Any]:
    try:
        return dict(json.loads(one.about))
    except UNREADABLE:
        # the names of the blocks in it may still be told
        return {"cursors": str(one.about).partition('"cursors":')[2], "deleting": 0}


def _body(one: Document) -> dict[str, Any]:
    try:
        return {**dict.fromkeys(_IN_BODY), **json.loads(one.body)}
    except UNREADABLE:
        return {"system": 0, "summary": "broken"}


def _user_of(one: Document) -> str | int | None:
    """The user, None for nobody's; a number, which no user is, where it cannot be told."""
    if isinstance(one.owner, str) and one.owner.startswith(_USER):
        return one.owner.removeprefix(_USER)
    return None if one.owner == f"session:{one.id}" else 0


def is_deleting(one: Document) -> bool:
    """Whether the deletion of a head's session has begun."""
    return bool(_about(one).get("deleting"))


def lag_of(one: Document, block: str) -> Lag | None:
    """A session that goes on past a block's cursor; None where it does not, or is being deleted.

    Raises:
        Damaged: It is not what was written.
    """
    try:
        about = json.loads(one.about)
        after = max(index(about["cursors"].get(block, 0)), index(about["expired"]))
        if about["deleting"] or after >= one.tail.seq:
            return None
        end, total = one.tail
        return Lag(one.id, after, end, index(total), index(one.last), from_micros(one.first))
    except UNREADABLE as error:
        raise Damage("session", one.id).error() from error


def are_not_absorbed(heads: Iterable[Document | None], block: str) -> list[Document]:
    """Return the heads whose logs go on past a block's cursor, and those that cannot be read.

    It reads the text: decoding each head takes longer than a search.
    """
    name = json.dumps(block)

    def is_absorbed(about: str, end: int) -> bool:
        mark = f"{name}:{end}"
        at = about.rfind(mark)
        return at > about.rfind('"cursors":') and about[at + len(mark) :][:1] in ("}", ",")

    return [one for one in heads if one is not None and not is_absorbed(one.about, one.tail[0])]


def line_of(
    session_id: str, seq: int, message: Message, tokens: int, total: int, encoding: str
) -> Line:
    """The line of a message that is to be an entry."""
    at, plain = to_micros(message.created_at), message.plain
    if plain is not None:
        role = message.role or ""
        return Line(session_id, seq, role, plain, at, tokens, total, encoding, "")
    shown = message.text()[:_MOST_SHOWN].replace("\0", "").encode(errors="ignore").decode()
    body = message.to_json()
    return Line(session_id, seq, message.role or "", shown, at, tokens, total, encoding, body)


def line_of_entry(entry: Entry) -> Line:
    """The line of an entry; its time is the message's."""
    one = entry
    return line_of(one.session_id, one.seq, one.message, one.tokens, one.total, one.encoding)


def entry_of(line: Line) -> Entry:
    """The entry of a line.

    Raises:
        Damaged: It is not what was written.
    """
    session, seq, role, text, created_at, tokens, total, encoding, body = line
    try:
        at = from_micros(created_at)
        message = Message.from_json(body, at) if body else Message.of_plain(role, text, at)
        return Entry(session, seq, message, index(tokens), index(total), encoding, at)
    except UNREADABLE as error:
        raise Damage("message", session, seq).error() from error


def key_id(session_id: str, name: str) -> DocId:
    """The document of an idempotency key."""
    return DocId(KEY, f"{name}:{session_id}")


def key_document(session_id: str, key: KeptKey) -> Document:
    """The document of an idempotency key: `first` is its time, `last` its seq."""
    at = to_micros(key.at)
    body = compact_json([key.name, key.digest, key.end, key.total])
    version = (at ^ (key.end * _MIX)) & (2**62 - 1)
    return Document(*key_id(session_id, key.name), "", session_id, at, key.seq, version, body=body)


def key_of(one: Document) -> KeptKey:
    """The inverse of `key_document`."""
    name, digest, end, total = json.loads(one.body)
    return KeptKey(name, digest, one.last, end, total, from_micros(one.first))


def record_document(collection: str, record: Record, version: int) -> Document:
    """The document of a record."""
    return Document(
        *(collection, record.id, record.owner, record.session_id, record.first, record.last),
        version=version,
        about=str(to_micros(record.created_at)),
        body=record_body(record),
    )


def record_from(one: Document, kind: Literal["fact", "vector"], block: str) -> Record:
    """The record of a document.

    Raises:
        Damaged: It is not what was written.
    """
    try:
        body = json.loads(one.body)
        return Record(
            id=as_text(one.id),
            owner=as_text(one.owner),
            session_id=one.session,
            first=index(one.first),
            last=index(one.last),
            text=as_text(body["text"]),
            sources=tuple(body["sources"]),
            created_at=from_micros(int(one.about)),
            metadata=dict(body["metadata"]),
        )
    except UNREADABLE as error:
        first = one.first if isinstance(one.first, int) else 0
        raise Damage(kind, str(one.session), first, block, str(one.id)).error() from error
