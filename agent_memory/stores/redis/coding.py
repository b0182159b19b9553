"""How heads, entries and records stand in the values of Redis."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import lru_cache
from typing import Any, Literal

from agent_memory.core.damage import Damage
from agent_memory.core.messages import Message, compact_json
from agent_memory.core.once import KeptKey
from agent_memory.core.records import Entry, Head, Lag, Record
from agent_memory.stores.coding import UNREADABLE, from_micros, head_fields, head_from, to_micros

_YEAR_0 = 10**17
"""Microseconds that make every time since the year 1 positive."""


def head_body(head: Head) -> str:
    """The parts of a head that only a change of its version changes; cursors first, where `LAGS`
    finds them without reading the system message."""
    return compact_json({"cursors": head.cursors, **head_fields(head)})


def head_of(session_id: str, fields: Sequence[bytes | None]) -> Head | None:
    """The head of `HEAD_FIELDS` as they were read; None where there is none.

    Raises:
        Damaged: Something of it is not what was written.
    """
    version, begun, end, total, user, deleting, body = fields[:7]
    if version is None or begun is None or end is None or total is None or body is None:
        return None
    return head_from(
        _fields(body),
        session_id=session_id,
        user_id=None if user is None else _decoded(user),
        end=number(end),
        total=number(total),
        version=number(version),
        deleting=deleting == b"1",
        begun=number(begun),
    )


def _fields(body: bytes) -> dict[str, Any]:
    try:
        return dict(json.loads(body))
    except UNREADABLE:
        return {"cursors": body.decode(errors="replace")}  # which may name its blocks still


def ids_in(members: Iterable[bytes]) -> list[str]:
    """The ids that an index lists; what is none, it cannot be of anything, is passed over."""
    found = []
    for member in members:
        with suppress(UnicodeDecodeError):
            found.append(member.decode())
    return found


def number(value: bytes) -> int | None:
    """A number as it was written; None for what is none."""
    try:
        return int(value)
    except ValueError:
        return None


def _decoded(value: bytes) -> str | bytes:
    try:
        return value.decode()
    except ValueError:
        return value


def mark_of(fields: Sequence[bytes | None]) -> str:
    """Names the call that moved a head last, of its `HEAD_FIELDS`; empty where none did."""
    return (fields[7] or b"").decode()


def lag_of(session_id: str, fields: Sequence[bytes | int]) -> Lag:
    """What `LAGS` tells of a session."""
    version, begun, end, total, after = map(int, fields)
    return Lag(session_id, after, end, total, version, from_micros(begun))


def entry_value(entry: Entry, token: str) -> str:
    """An entry, but for its place: what is about it, a newline, and the message.

    Args:
        entry: The entry; its total comes first, for scripts to find.
        token: Names the call that appends it, so that a call whose answer was lost knows its own.
    """
    micros, encoding = to_micros(entry.created_at), _quoted(entry.encoding)
    about = f"{entry.total} {entry.tokens} {micros} {token} {encoding}"
    return f"{about}\n{entry.message.to_json()}"


def token_of(about: bytes) -> str:
    """The token in the first line of an entry's value."""
    return about.split(b" ", 4)[3].decode()


def entry_of(session_id: str, seq: int, value: bytes) -> Entry:
    """The inverse of `entry_value`.

    Raises:
        Damaged: It is not what was written.
    """
    try:
        about, _, message = value.partition(b"\n")
        total, tokens, micros, _, encoding = about.split(b" ", 4)
        created_at = from_micros(int(micros))
        return Entry(
            session_id=session_id,
            seq=seq,
            message=Message.from_json(message, created_at),
            tokens=int(tokens),
            total=int(total),
            encoding=_unquoted(encoding),
            created_at=created_at,
        )
    except UNREADABLE as error:
        raise Damage("message", session_id, seq).error() from error


def key_value(key: KeptKey) -> str:
    """A key, but for its name and its place in the queue."""
    return f"{to_micros(key.at)} {key.seq} {key.end} {key.total} {key.digest}"


def key_of(value: bytes) -> KeptKey:
    """The key of its name, its place in the queue and its value."""
    name, _, at, seq, end, total, digest = value.decode().split(" ", 6)
    return KeptKey(name, digest, int(seq), int(end), int(total), from_micros(int(at)))


@lru_cache(64)
def _quoted(encoding: str) -> str:
    return json.dumps(encoding)


@lru_cache(64)
def _unquoted(encoding: bytes) -> str:
    return str(json.loads(encoding))


def record_span(record: Record) -> str:
    """What scripts must know of a record: seqs, and its members in the indexes."""
    time = to_micros(record.created_at) + _YEAR_0
    owner = f"{record.owner}\0{time:018d}\0{record.id}"
    length = len(owner.encode())
    return f"{record.first}:{record.last}:{length}:{owner}{record.session_id}\0{record.id}"


def record_value(record: Record) -> str:
    """A record."""
    return compact_json({**asdict(record), "created_at": to_micros(record.created_at)})


def record_of(
    value: bytes, kind: Literal["fact", "vector"], block: str, record_id: bytes = b""
) -> Record:
    """The inverse of `record_value`.

    Raises:
        Damaged: It is not what was written; with its id, where it is known.
    """
    try:
        fields = json.loads(value)
        fields["sources"] = tuple(fields["sources"])
        return Record(**{**fields, "created_at": from_micros(fields["created_at"])})
    except UNREADABLE as error:
        name = record_id.decode(errors="replace")
        raise Damage(kind, block=block, record_id=name).error() from error


def collection_value(known: tuple[int, str]) -> str:
    """Dimension and embedding model of a block's vectors."""
    return f"{known[0]} {known[1]}"


def stored_collection(value: bytes) -> tuple[int, str]:
    """The inverse of `collection_value`."""
    dimension, _, model = value.decode().partition(" ")
    return int(dimension), model
