"""How heads and entries stand in the rows of an SQL database."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from agent_memory.messages import Message, compact_json
from agent_memory.records import Entry, Head, Summary
from agent_memory.stores.coding import from_micros, to_micros


def head_values(head: Head) -> dict[str, Any]:
    """The columns that a change of the head writes."""
    system, summary = head.system, head.summary
    return {
        "user_id": head.user_id,
        "start": head.start,
        "start_total": head.start_total,
        "pinned": compact_json(head.pinned),
        "pinned_tokens": head.pinned_tokens,
        "system": None if system is None else system.to_json(),
        "system_at": 0 if system is None else to_micros(system.created_at),
        "system_tokens": head.system_tokens,
        "summary": None if summary is None else compact_json(asdict(summary)),
        "cursors": compact_json(head.cursors),
        "version": head.version,
        "deleting": head.deleting,
    }


def head_of(row: Any) -> Head:
    """The head of a session's row, which has its log's `end` and `total` too."""
    summary = None if row.summary is None else Summary(**json.loads(row.summary))
    system = None
    if row.system is not None:
        system = Message.from_json(row.system, from_micros(row.system_at))
    return Head(
        session_id=row.session_id,
        user_id=row.user_id,
        end=row.end,
        total=row.total,
        start=row.start,
        start_total=row.start_total,
        pinned=tuple(json.loads(row.pinned)),
        pinned_tokens=row.pinned_tokens,
        system=system,
        system_tokens=row.system_tokens,
        summary=summary,
        cursors=json.loads(row.cursors),
        version=row.version,
        deleting=bool(row.deleting),
        created_at=from_micros(row.created_at),
    )


def entry_values(entry: Entry) -> dict[str, Any]:
    """The columns of an entry, but for its session's key."""
    return {
        "seq": entry.seq,
        "tokens": entry.tokens,
        "total": entry.total,
        "encoding": entry.encoding,
        "created_at": to_micros(entry.created_at),
        "message": entry.message.to_json(),
    }


def entry_of(session_id: str, row: Any) -> Entry:
    """The entry of a row."""
    created_at = from_micros(row.created_at)
    return Entry(
        session_id=session_id,
        seq=row.seq,
        message=Message.from_json(row.message, created_at),
        tokens=row.tokens,
        total=row.total,
        encoding=row.encoding,
        created_at=created_at,
    )
