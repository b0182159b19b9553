"""How sessions and entries stand in MongoDB's documents."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Sequence
from operator import index
from typing import Any

from agent_memory.core.damage import Damage
from agent_memory.core.limits import UNREADABLE
from agent_memory.core.messages import Message, compact_json
from agent_memory.core.records import Entry, Head, Lag
from agent_memory.stores.coding import (
    from_micros,
    head_fields,
    head_from,
    json_or_none,
    to_micros,
)

Doc = dict[str, Any]

NEVER = 2**62
"""The time at which a session is due that waits for nothing."""

NO_TAIL: Doc = {"tail": 0, "keys": 0}
"""The fields of a session's document without those of its newest entries and keys."""

_ENTRY_BYTES = 256  # what an entry takes besides its message, about
_PIECE = 2**21  # characters; a document may have 16 MiB, and a character four bytes


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
    """The head of a session's document.

    Raises:
        Damaged: Something of it is not what was written.
    """
    return head_from(
        doc,
        session_id=doc["sid"],
        user_id=doc.get("user"),
        end=doc.get("end"),
        total=doc.get("total"),
        version=doc.get("version"),
        deleting=doc.get("deleting"),
        begun=doc.get("begun"),
    )


LAG_FIELDS: Doc = dict.fromkeys(
    ("sid", "cursors", "expired", "end", "total", "version", "begun"), 1
)


def lag_of(doc: Doc, block: str) -> Lag:
    """What a session's document tells of what a block has still to absorb."""
    try:
        begun = from_micros(doc["begun"])
        try:
            cursor = index(json.loads(doc["cursors"]).get(block, 0))
        except UNREADABLE:
            cursor = 0  # of what is damaged all waits
        after, end = max(cursor, index(doc["expired"])), index(doc["end"])
        return Lag(doc["sid"], after, end, index(doc["total"]), doc["version"], begun)
    except UNREADABLE as error:
        raise Damage("session", doc["sid"]).error() from error


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


def ids_of(log: str, values: Doc) -> list[str]:
    """The ids of an entry's document, and of those of its message's pieces."""
    own = f"{log}.{values['n']}.{values['w']}"
    return [own, *(f"{own}.{part}" for part in range(values.get("pieces", 0)))]


def in_pieces(log: str, values: Doc) -> list[Doc]:
    """The document of an entry, and those of its message's pieces, where one can't hold it.

    The entry says how many there are (`pieces`). For all else they are staged entries: they are
    removed with the entry, by its place, and never taken for one.
    """
    text = values["message"]
    if len(text) <= _PIECE:
        return [entry_doc(log, values)]
    parts = [text[at : at + _PIECE] for at in range(0, len(text), _PIECE)]
    values["pieces"] = len(parts)
    own, *ids = ids_of(log, values)
    place = {"log": log, **{name: values[name] for name in ("n", "g", "w")}, "staged": 1}
    pieces = [
        {"_id": name, **place, "part": part, "text": text_of_part}
        for part, (name, text_of_part) in enumerate(zip(ids, parts, strict=True))
    ]
    return [{**entry_doc(log, values), "_id": own, "message": ""}, *pieces]


def put_together(docs: Sequence[Doc]) -> list[Doc]:
    """The documents of entries, with the messages that stand in pieces of their own, as far as all
    of these are there."""
    pieces: dict[tuple[int, str], dict[int, str]] = {}
    for doc in docs:
        if "part" in doc:
            pieces.setdefault((doc["n"], doc["w"]), {})[doc["part"]] = doc["text"]
    whole: list[Doc] = []
    for doc in docs:
        if doc.get("pieces"):
            parts = pieces.get((doc["n"], doc["w"]), {})
            text = "".join(parts[part] for part in sorted(parts))
            if len(parts) == doc["pieces"]:
                whole.append({**doc, "message": text})
        elif "part" not in doc:
            whole.append(doc)
    return whole


def is_away(values: Doc) -> bool:
    """Whether a tail has an entry that stands on its own."""
    return "message" not in values


def weight(values: Doc) -> int:
    """About how many bytes an entry takes."""
    return _ENTRY_BYTES + len(values.get("message", "").encode())


def entry_of(session_id: str, doc: Doc) -> Entry:
    """The entry of a document.

    Raises:
        Damaged: It is not what was written.
    """
    try:
        created_at = from_micros(doc["created_at"])
        return Entry(
            session_id=session_id,
            seq=doc["n"],
            message=Message.from_json(doc["message"], created_at),
            tokens=index(doc["tokens"]),
            total=index(doc["total"]),
            encoding=doc["encoding"],
            created_at=created_at,
        )
    except UNREADABLE as error:
        raise Damage("message", session_id, doc["n"]).error() from error
