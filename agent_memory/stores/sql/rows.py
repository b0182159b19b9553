"""How heads and entries stand in the rows of an SQL database."""

from __future__ import annotations

from operator import index
from typing import Any

from agent_memory.core.damage import Damage
from agent_memory.core.messages import Message, compact_json
from agent_memory.core.records import Entry, Head, Lag
from agent_memory.stores.coding import (
    UNREADABLE,
    from_micros,
    head_fields,
    head_from,
    json_or_none,
    to_micros,
)


def head_values(head: Head) -> dict[str, Any]:
    """The columns that a change of the head writes."""
    fields = head_fields(head)
    return {
        **fields,
        "user_id": head.user_id,
        "pinned": compact_json(fields["pinned"]),
        "summary": json_or_none(fields["summary"]),
        "cursors": compact_json(fields["cursors"]),
        "version": head.version,
        "deleting": head.deleting,
    }


def head_of(row: Any) -> Head:
    """The head of a session's row, which has its log's `end` and `total` too.

    Raises:
        Damaged: Something of it is not what was written.
    """
    return head_from(
        row._asdict(),
        session_id=row.session_id,
        user_id=row.user_id,
        end=row.end,
        total=row.total,
        version=row.version,
        deleting=row.deleting,
        begun=row.created_at,
    )


def entry_values(entry: Entry) -> dict[str, Any]:
    """The columns of an entry, but for its session's key."""
    return message_values(entry.message, entry.seq, entry.total, entry.tokens, entry.encoding)


def message_values(
    message: Message, seq: int, total: int, tokens: int, encoding: str
) -> dict[str, Any]:
    """The same of a message that is to be an entry."""
    return {
        "seq": seq,
        "tokens": tokens,
        "total": total,
        "encoding": encoding,
        "created_at": to_micros(message.created_at),
        "message": message.to_json(),
    }


def entry_of(session_id: str, row: Any) -> Entry:
    """The entry of a row.

    Raises:
        Damaged: It is not what was written.
    """
    try:
        created_at = from_micros(row.created_at)
        return Entry(
            session_id=session_id,
            seq=row.seq,
            message=Message.from_json(row.message, created_at),
            tokens=index(row.tokens),
            total=index(row.total),
            encoding=row.encoding,
            created_at=created_at,
        )
    except UNREADABLE as error:
        raise Damage("message", session_id, row.seq).error() from error


def lag_of(row: Any) -> Lag:
    """What a row tells of a session that a block lags behind.

    Raises:
        Damaged: It is not what was written.
    """
    try:
        return Lag(
            session_id=row.session_id,
            after=max(index(row.absorbed), index(row.expired)),
            end=row.end,
            total=index(row.total),
            version=row.version,
            created_at=from_micros(row.created_at),
        )
    except UNREADABLE as error:
        raise Damage("session", row.session_id).error() from error
