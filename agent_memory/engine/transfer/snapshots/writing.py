"""Writing the lines of a session's snapshot."""

from __future__ import annotations

from base64 import b64encode
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from agent_memory.core.idempotency import KeptKey
from agent_memory.core.messages import compact_json
from agent_memory.core.records import DeadLetter, Entry, Head, Record, Scope
from agent_memory.engine.transfer.snapshots.lines import FORMAT, VERSION, Digest


@dataclass(frozen=True, slots=True)
class Exported:
    """The result of an export.

    Attributes:
        session_id: The session.
        entries: The number of messages.
        records: The number of records of blocks: facts, vectors, dead letters and tombstones.
        left_out: Names of the blocks whose records this store cannot export. They absorb the
            imported session from the beginning.
    """

    session_id: str
    entries: int
    records: int
    left_out: tuple[str, ...] = ()


class Writing:
    """Makes the lines of a snapshot. They must be written in the order of the calls."""

    def __init__(self, head: Head) -> None:
        self._head = head
        self._digest = Digest()
        self.counts: Counter[str] = Counter()

    def opening(self, library: str) -> str:
        """Return the first line."""
        head = self._head
        format_fields = {"format": FORMAT, "version": VERSION, "library": library}
        ids = {"session": head.session_id, "user": head.user_id}
        return self._digest.summed(
            compact_json({**format_fields, "at": _iso(datetime.now(UTC)), **ids})
        )

    def head(self) -> str:
        """Return the second line."""
        head = self._head
        system, summary = head.system, head.summary
        fields = {
            **_fields(head, "end", "total", "expired", "start", "start_total", "pinned"),
            "pinned_tokens": head.pinned_tokens,
            "system_at": None if system is None else _iso(system.created_at),
            "system_tokens": head.system_tokens,
            "summary": None if summary is None else asdict(summary),
            "cursors": head.cursors,
            "begun": _iso(head.created_at),
        }
        return self._line("head", fields, system="null" if system is None else system.to_json())

    def entry(self, entry: Entry) -> str:
        """Return the line of a message of the log, as it is stored."""
        fields = _fields(entry, "seq", "tokens", "total", "encoding")
        fields["at"] = _iso(entry.created_at)
        return self._line("entry", fields, message=entry.message.to_json())

    def key(self, key: KeptKey) -> str:
        """Return the line of an idempotency key of messages of the log."""
        return self._line("key", _fields(key, "name", "digest", "seq", "end", "total", "at"))

    def fact(self, block: str, record: Record) -> str:
        """Return the line of a record of the fact store."""
        return self._line("fact", self._record(block, record))

    def vectors(self, block: str, dimension: int, model: str) -> str:
        """Return the line before a block's vectors."""
        return self._line("vectors", {"block": block, "dimension": dimension, "model": model})

    def vector(self, block: str, record: Record, traits: bytes) -> str:
        """Return the line of a record of a vector store, with its stored features."""
        fields = self._record(block, record)
        return self._line("vector", {**fields, "traits": b64encode(traits).decode("ascii")})

    def dead_letter(self, letter: DeadLetter) -> str:
        """Return the line of a dead letter."""
        fields = _fields(letter, "block", "first", "last", "attempts", "error", "since")
        return self._line("dead_letter", fields)

    def forgotten(self, record: Record) -> str:
        """Return the line of a tombstone: a fact that must stay forgotten."""
        place = {"first": record.first, "last": record.last, "at": _iso(record.created_at)}
        return self._line("forgotten", {**place, **record.metadata})

    def value(self, record: Record) -> str:
        """Return the line of a value of the session, such as its metadata."""
        metadata = record.metadata
        name, vectors, count = metadata.get("vectors") or (None, None, None)
        fields = {
            "namespace": metadata["ns"],
            "key": record.text,
            "value": metadata["value"],
            "begun": metadata["begun"],
            "at": _iso(record.created_at),
            "ttl": metadata.get("ttl"),
            "until": metadata.get("until"),
            "meaning": name and {"embedder": name, "count": count, "vectors": vectors},
        }
        return self._line("value", fields)

    def end(self) -> str:
        """Return the last line."""
        counts = dict(self.counts)
        return self._line("end", {"counts": counts, "sha256": self._digest.whole()})

    def _record(self, block: str, record: Record) -> dict[str, Any]:
        head = self._head
        own = record.owner == Scope(None, head.session_id).owner
        return {
            "block": block,
            "id": record.id,
            "of": "session" if own else "user",
            **_fields(record, "first", "last", "text", "sources"),
            "at": _iso(record.created_at),
            "metadata": record.metadata,
        }

    def _line(self, kind: str, fields: dict[str, Any], **written: str) -> str:
        """Return a line of fields, and of further fields that are JSON already."""
        self.counts[kind] += 1
        body = compact_json({"kind": kind, **fields})
        more = "".join(f',"{name}":{text}' for name, text in written.items())
        return self._digest.summed(f"{body[:-1]}{more}}}")


def owners_of(head: Head) -> Sequence[str]:
    """Return the owners of a session's records: its user, and the session itself."""
    return tuple(dict.fromkeys(Scope(user, head.session_id).owner for user in (head.user_id, None)))


def _fields(one: object, *names: str) -> dict[str, Any]:
    values = {name: getattr(one, name) for name in names}
    return {
        name: _iso(value) if isinstance(value, datetime) else value
        for name, value in values.items()
    }


def _iso(moment: datetime) -> str:
    return moment.isoformat()
