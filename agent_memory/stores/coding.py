"""How stores write down times, JSON and records: the same on every database."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from typing import Any

from agent_memory.messages import compact_json
from agent_memory.records import Record

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
        f"agent_memory.rebuild(config, {block!r}). Or go back to the former embedder."
    )
