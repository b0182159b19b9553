"""What stands in the files of a folder: one JSON object a line. Pure."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from hashlib import sha256
from typing import Any
from urllib.parse import quote

from agent_memory.core.messages import Message
from agent_memory.core.once import KeptKey
from agent_memory.core.records import Entry, Head, Record
from agent_memory.errors import Undecryptable
from agent_memory.stores.coding import from_micros, head_fields, head_from, to_micros
from agent_memory.stores.seals import UNSEALED, SegmentSeals

_LONGEST = 80

Fields = dict[str, Any]


def file_name(name: str) -> str:
    """The file of a session or a block: its name as far as a path can say it, and a few digits, so
    that no two share a file where case makes no difference."""
    digits = sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:10]
    shown = quote(name, safe=" @+=,", errors="replace").lstrip(".")[:_LONGEST]
    return f"{shown}-{digits}.jsonl"


def line_of(fields: Fields) -> str:
    """One line, without its end."""
    return json.dumps(fields, ensure_ascii=False, separators=(", ", ": "))


def line_of_head(head: Head) -> str:
    """The first line of a session's file."""
    fields = head_fields(head)
    if fields["system"] is not None:
        fields["system"] = json.loads(fields["system"])
    return line_of(
        {
            "session": head.session_id,
            "user": head.user_id,
            "created_at": head.created_at.isoformat(),
            "version": head.version,
            "deleting": head.deleting,
            "end": head.end,
            "total": head.total,
            **fields,
        }
    )


def head_of(fields: Fields) -> Head:
    """The inverse of `line_of_head`."""
    system = fields["system"]
    given = {**fields, "system": None if system is None else json.dumps(system)}
    return head_from(
        given,
        session_id=fields["session"],
        user_id=fields["user"],
        end=fields["end"],
        total=fields["total"],
        version=fields["version"],
        deleting=fields["deleting"],
        begun=to_micros(datetime.fromisoformat(fields["created_at"])),
    )


def line_of_entry(entry: Entry) -> str:
    """A message at its place."""
    return line_of(
        {
            "seq": entry.seq,
            "at": entry.created_at.isoformat(),
            "message": json.loads(entry.message.to_json()),
            "tokens": entry.tokens,
            "total": entry.total,
            "encoding": entry.encoding,
        }
    )


def entry_of(session_id: str, fields: Fields) -> Entry:
    """The inverse of `line_of_entry`."""
    at = datetime.fromisoformat(fields["at"])
    message = Message.from_json(json.dumps(fields["message"]), at)
    return Entry(
        session_id,
        fields["seq"],
        message,
        fields["tokens"],
        fields["total"],
        fields["encoding"],
        at,
    )


def line_of_key(key: KeptKey) -> str:
    """A key by which a write is known."""
    kept = [key.name, key.digest, key.seq, key.end, key.total, to_micros(key.at)]
    return line_of({"key": kept})


def key_of(fields: Fields) -> KeptKey:
    """The inverse of `line_of_key`."""
    name, digest, seq, end, total, at = fields["key"]
    return KeptKey(name, digest, seq, end, total, from_micros(at))


def line_of_record(record: Record, features: str | None = None) -> str:
    """A record, with its features as text where it has any."""
    more = {} if features is None else {"features": features}
    return line_of(
        {
            "text": record.text,
            "at": record.created_at.isoformat(),
            "metadata": record.metadata,
            "session": record.session_id,
            "first": record.first,
            "last": record.last,
            "sources": list(record.sources),
            "owner": record.owner,
            "id": record.id,
            **more,
        }
    )


def text_of(blob: bytes, block: str, record: Record, seals: SegmentSeals) -> str:
    """A record's features as text."""
    sealed = seals.sealed(block, record.owner, record.id, blob)
    return base64.b64encode(sealed).decode("ascii")


def blob_of(text: object, block: str, record: Record, seals: SegmentSeals) -> bytes:
    """The inverse of `text_of`; nothing in place of what cannot be read, or lacks its key."""
    try:
        blob = base64.b64decode(text, validate=True) if isinstance(text, str) else b""
        return seals.opened(block, record.owner, record.id, blob)
    except (ValueError, Undecryptable):
        return b""


def refuse_sealed(block: str, texts: Iterable[object]) -> None:
    """See that features are not sealed, where no key is given.

    Raises:
        Undecryptable: Some are.
    """
    for text in texts:
        with suppress(ValueError):
            blob = base64.b64decode(text, validate=True) if isinstance(text, str) else b""
            UNSEALED.opened(block, "", "", blob)


def record_of(fields: Fields) -> tuple[Record, Any]:
    """The inverse of `line_of_record`; the features as they stand there."""
    record = Record(
        id=fields["id"],
        owner=fields["owner"],
        session_id=fields["session"],
        first=fields["first"],
        last=fields["last"],
        text=fields["text"],
        sources=tuple(fields["sources"]),
        created_at=datetime.fromisoformat(fields["at"]),
        metadata=fields["metadata"],
    )
    return record, fields.get("features")


def in_order(records: Iterable[Record]) -> list[Record]:
    """Records in the order of their lines."""
    return sorted(records, key=lambda one: (one.created_at, one.id))


def bytes_of(lines: Iterable[str]) -> bytes:
    """A file of lines."""
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogatepass")


def lines_in(data: bytes) -> Iterator[Fields]:
    """What the lines of a file say.

    Raises:
        ValueError: One is no JSON object; it tells which.
    """
    for number, line in enumerate(data.decode("utf-8", "surrogatepass").split("\n"), 1):
        if line.strip():
            try:
                fields = json.loads(line)
            except ValueError as error:
                raise ValueError(f"line {number} is no JSON: {error}") from None
            if not isinstance(fields, dict):
                raise ValueError(f"line {number} is no JSON object")
            yield fields
