"""How sessions and entries stand in MongoDB's documents."""

from __future__ import annotations

import hashlib
import json
import secrets
from typing import Any

from agent_memory.core.messages import Message, compact_json
from agent_memory.core.records import Entry, Head
from agent_memory.stores.coding import (
    from_micros,
    head_fields,
    head_from,
    json_or_none,
    to_micros,
    value_or_none,
)

Doc = dict[str, Any]

NEVER = 2**62
"""The time at which a session is due that waits for nothing."""

NO_TAIL: Doc = {"tail": 0}
"""The fields of a session's document without those of its newest entries."""

_ENTRY_BYTES = 256  # what an entry takes besides its message, about


def key_of(*names: str) -> str:
    """A short key for names of any length, in any script."""
    return hashlib.sha256(json.dumps(names).encode()).hexdigest()[:40]


def token() -> str:
    """A name that nobody else has."""
    return secrets.token_hex(8)


def head_values(head: Head) -> Doc:
    """The fields that a change of the head writes."""
    fields = head_fields(head)
    return {
        **fields,
        "user": head.user_id,
        "summary": json_or_none(fields["summary"]),
        "cursors": compact_json(fields["cursors"]),  # blocks' names may hold dots
        "version": head.version,
        "deleting": int(head.deleting),
    }


def head_of(doc: Doc) -> Head:
    """The head of a session's document."""
    summary, cursors = value_or_none(doc["summary"]), json.loads(doc["cursors"])
    return head_from(
        {**doc, "summary": summary, "cursors": cursors},
        session_id=doc["sid"],
        user_id=doc["user"],
        end=doc["end"],
        total=doc["total"],
        version=doc["version"],
        deleting=bool(doc["deleting"]),
        begun=doc["begun"],
    )


def tail_key(seq: int) -> str:
    """The field of an entry in its session's tail."""
    return f"e{seq}"


def entry_values(entry: Entry, version: int, write: str) -> Doc:
    """An entry's fields.

    Args:
        entry: The entry.
        version: The session's, when it was appended: of two entries in one place, one was cut off,
            and that has the lower.
        write: Names the append.
    """
    return {
        "n": entry.seq,
        "g": version,
        "w": write,
        "tokens": entry.tokens,
        "total": entry.total,
        "encoding": entry.encoding,
        "created_at": to_micros(entry.created_at),
        "message": entry.message.to_json(),
    }


def entry_doc(log: str, values: Doc) -> Doc:
    """The document of an entry; the same whoever writes it down."""
    return {"_id": f"{log}.{values['n']}.{values['w']}", "log": log, **values}


def is_away(values: Doc) -> bool:
    """Whether a tail has an entry that stands on its own."""
    return "message" not in values


def weight(values: Doc) -> int:
    """About how many bytes an entry takes."""
    return _ENTRY_BYTES + len(values.get("message", "").encode())


def entry_of(session_id: str, doc: Doc) -> Entry:
    """The entry of a document."""
    created_at = from_micros(doc["created_at"])
    return Entry(
        session_id=session_id,
        seq=doc["n"],
        message=Message.from_json(doc["message"], created_at),
        tokens=doc["tokens"],
        total=doc["total"],
        encoding=doc["encoding"],
        created_at=created_at,
    )
