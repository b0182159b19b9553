"""How stores write down times, heads and records: the same on every database."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from operator import index
from typing import Any, Literal

from agent_memory.core.damage import Damage
from agent_memory.core.limits import UNREADABLE
from agent_memory.core.messages import Message, compact_json
from agent_memory.core.records import Head, Record, Summary
from agent_memory.stores.base import LONGEST_LEASE_SECONDS

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def to_micros(moment: datetime) -> int:
    """Microseconds since 1970 (UTC), exactly."""
    return (moment - _EPOCH) // _MICROSECOND


def from_micros(micros: int) -> datetime:
    """The inverse of `to_micros`."""
    return _EPOCH + timedelta(microseconds=micros)


def now_micros() -> int:
    """The time, in microseconds since 1970 (UTC)."""
    return int(time.time() * 1e6)


def latest_micros(now: int) -> int:
    """When a lease ends at the latest that is taken now."""
    return now + micros_of(LONGEST_LEASE_SECONDS)


def micros_of(seconds: float) -> int:
    """Return seconds as microseconds."""
    return int(seconds * 1e6)


def head_fields(head: Head) -> dict[str, Any]:
    """The parts of a head that only a change of its version changes, as JSON can say them."""
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


def head_from(
    fields: Mapping[str, Any],
    *,
    session_id: str,
    user_id: Any,
    end: Any,
    total: Any,
    version: Any,
    deleting: Any,
    begun: Any,
) -> Head:
    """The inverse of `head_fields`, with what is kept beside them. `begun`: in microseconds.

    Lists and objects may be given as JSON.

    Raises:
        Damaged: Something of it is not what was written.
    """
    given = {
        **fields,
        "user_id": user_id,
        "end": end,
        "total": total,
        "version": version,
        "deleting": deleting,
        "created_at": begun,
        "system": (fields.get("system"), fields.get("system_at")),
    }
    parts: dict[str, Any] = {}
    broken: list[str] = []
    for name, (decode, otherwise) in _PARTS.items():
        try:
            parts[name] = decode(given.get(name))
        except UNREADABLE:
            parts[name] = otherwise(given.get(name))
            broken.append(name)
    head = Head(session_id=session_id, **parts)
    if broken:
        raise Damage("session", session_id, broken=tuple(broken), head=head).error()
    return head


def _loaded(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value


def as_text(value: Any) -> str:
    """The value, which is a text.

    Raises:
        TypeError: It is none.
    """
    if isinstance(value, str):
        return value
    raise TypeError


def _cursors(value: Any) -> dict[str, int]:
    return {name: index(at) for name, at in _loaded(value).items()}


def _summary(value: Any) -> Summary | None:
    if value is None:
        return None
    found = Summary(**_loaded(value))
    as_text(found.text)
    index(found.tokens)
    index(found.upto)
    return found


def _system(value: Any) -> Message | None:
    text, at = value
    return None if text is None else Message.from_json(as_text(text), from_micros(at))


def _blocks(value: Any) -> dict[str, int]:
    """The blocks that damaged cursors name still: they begin anew."""
    return dict.fromkeys(_NAMED.findall(value) if isinstance(value, str) else (), 0)


def _none(value: Any) -> Any:
    return None


def _zero(value: Any) -> int:
    return 0


_NAMED = re.compile(r'"([a-z][a-z0-9_]*)":')
_NUMBER = (index, _zero)
_PARTS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "user_id": (lambda value: None if value is None else as_text(value), _none),
    "end": _NUMBER,
    "total": _NUMBER,
    "expired": _NUMBER,
    "start": _NUMBER,
    "start_total": _NUMBER,
    "pinned": (lambda value: tuple(map(index, _loaded(value))), lambda value: ()),
    "pinned_tokens": _NUMBER,
    "system": (_system, _none),
    "system_tokens": _NUMBER,
    "summary": (_summary, _none),
    "cursors": (_cursors, _blocks),
    "version": _NUMBER,
    "deleting": (lambda value: bool(index(value)), lambda value: False),
    "created_at": (lambda value: from_micros(index(value)), lambda value: _EPOCH),
}
"""The parts of a head: how each is read, and what stands for one that cannot be."""


def record_body(record: Record) -> str:
    """The parts of a record that are only ever read back, as JSON."""
    return compact_json(
        {"text": record.text, "sources": record.sources, "metadata": record.metadata}
    )


def record_of(row: Any, kind: Literal["fact", "vector"], block: str) -> Record:
    """The record of a row with `id, owner, session_id, first, last, created_at, body`.

    Raises:
        Damaged: It is not what was written.
    """
    try:
        body = json.loads(row.body)
        return Record(
            id=as_text(row.id),
            owner=as_text(row.owner),
            session_id=row.session_id,
            first=index(row.first),
            last=index(row.last),
            text=as_text(body["text"]),
            sources=tuple(body["sources"]),
            created_at=from_micros(row.created_at),
            metadata=dict(body["metadata"]),
        )
    except UNREADABLE as error:
        raise damaged_record(row, kind, block).error() from error


def damaged_record(row: Any, kind: Literal["fact", "vector"], block: str) -> Damage:
    """Return the damage of an unreadable record, with what its row still shows."""
    id_, session, first = (getattr(row, name, "") for name in ("id", "session_id", "first"))
    return Damage(kind, str(session), first if isinstance(first, int) else 0, block, str(id_))


def mismatch(block: str, stored: tuple[int, str], given: tuple[int, str]) -> str:
    """Return the error message for vectors of another dimension or embedding model."""
    return (
        f"Block {block!r} holds vectors of {stored[1]!r} with {stored[0]} dimensions, and the "
        f"embedder is {given[1]!r} with {given[0]}. If these settings are the new ones, rebuild "
        f"it: `agent-memory replay {block}`, or agent_memory.operations.rebuild(config, "
        f"{block!r}). If it was rebuilt since, start with the new settings."
    )
