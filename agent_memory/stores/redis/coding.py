"""How heads, entries and records stand in the values of Redis."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from functools import lru_cache

from agent_memory.core.messages import Message, compact_json
from agent_memory.core.records import Entry, Head, Record
from agent_memory.stores.coding import from_micros, head_fields, head_from, to_micros

_YEAR_0 = 10**17
"""Microseconds that make every time since the year 1 positive."""


def head_body(head: Head) -> str:
    """The parts of a head that only a change of its version changes."""
    return compact_json(head_fields(head))


def head_of(session_id: str, fields: Sequence[bytes | None]) -> Head | None:
    """The head of `HEAD_FIELDS` as they were read; None where there is none."""
    version, begun, end, total, user, deleting, body = fields[:7]
    if version is None or begun is None or end is None or total is None or body is None:
        return None
    return head_from(
        json.loads(body),
        session_id=session_id,
        user_id=None if user is None else user.decode(),
        end=int(end),
        total=int(total),
        version=int(version),
        deleting=deleting == b"1",
        begun=int(begun),
    )


def mark_of(fields: Sequence[bytes | None]) -> str:
    """Names the call that moved a head last, of its `HEAD_FIELDS`; empty where none did."""
    return (fields[7] or b"").decode()


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
    """The inverse of `entry_value`."""
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


def record_of(value: bytes) -> Record:
    """The inverse of `record_value`."""
    fields = json.loads(value)
    fields["sources"] = tuple(fields["sources"])
    return Record(**{**fields, "created_at": from_micros(fields["created_at"])})


def collection_value(known: tuple[int, str]) -> str:
    """Dimension and embedding model of a block's vectors."""
    return f"{known[0]} {known[1]}"


def stored_collection(value: bytes) -> tuple[int, str]:
    """The inverse of `collection_value`."""
    dimension, _, model = value.decode().partition(" ")
    return int(dimension), model
