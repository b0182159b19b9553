"""How stores write down times, heads and records: the same on every database."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any

from agent_memory.core.messages import Message, compact_json
from agent_memory.core.records import Head, Record, Summary

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
    user_id: str | None,
    end: int,
    total: int,
    version: int,
    deleting: bool,
    begun: int,
) -> Head:
    """The inverse of `head_fields`, with what is kept beside them. `begun`: in microseconds."""
    system, summary = fields["system"], fields["summary"]
    if system is not None:
        system = Message.from_json(system, from_micros(fields["system_at"]))
    return Head(
        session_id=session_id,
        user_id=user_id,
        end=end,
        total=total,
        expired=fields["expired"],
        start=fields["start"],
        start_total=fields["start_total"],
        pinned=tuple(fields["pinned"]),
        pinned_tokens=fields["pinned_tokens"],
        system=system,
        system_tokens=fields["system_tokens"],
        summary=None if summary is None else Summary(**summary),
        cursors=fields["cursors"],
        version=version,
        deleting=deleting,
        created_at=from_micros(begun),
    )


def json_or_none(value: object) -> str | None:
    """JSON, where there is a value."""
    return None if value is None else compact_json(value)


def value_or_none(text: str | None) -> Any:
    """The inverse of `json_or_none`."""
    return None if text is None else json.loads(text)


def record_body(record: Record) -> str:
    """The parts of a record that are only ever read back, as JSON."""
    return compact_json(
        {"text": record.text, "sources": record.sources, "metadata": record.metadata}
    )


def record_of(row: Any) -> Record:
    """The record of a row with `id, owner, session_id, first, last, created_at, body`."""
    body = json.loads(row.body)
    return Record(
        id=row.id,
        owner=row.owner,
        session_id=row.session_id,
        first=row.first,
        last=row.last,
        text=body["text"],
        sources=tuple(body["sources"]),
        created_at=from_micros(row.created_at),
        metadata=body["metadata"],
    )


def mismatch(block: str, stored: tuple[int, str], given: tuple[int, str]) -> str:
    """What to tell about vectors of another dimension or embedding model."""
    return (
        f"Block {block!r} holds vectors of {stored[1]!r} with {stored[0]} dimensions, and the "
        f"embedder is {given[1]!r} with {given[0]}. Rebuild it: `agent-memory replay {block}`, or "
        f"agent_memory.operations.rebuild(config, {block!r}). Or go back to the former embedder."
    )
