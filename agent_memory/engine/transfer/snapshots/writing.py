"""From a session to the lines of its snapshot."""

from __future__ import annotations

from base64 import b64encode
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from agent_memory.core.messages import compact_json
from agent_memory.core.once import KeptKey
from agent_memory.core.records import DeadLetter, Entry, Head, Record, Scope
from agent_memory.engine.transfer.snapshots.lines import FORMAT, VERSION, Digest


@dataclass(frozen=True, slots=True)
class Exported:
    """What one `export_session` wrote.

    Attributes:
        session_id: The session.
        entries: How many messages.
        records: How many records of blocks: facts and vectors, what was set aside as a dead letter
            and what is to stay forgotten.
        left_out: Names of the blocks that absorb the session anew where it is imported: their
            records can't be taken out of this store.
    """

    session_id: str
    entries: int
    records: int
    left_out: tuple[str, ...] = ()


class Writing:
    """Makes lines, each to be written where the last one ended.

    Args:
        head: The session's.
    """

    def __init__(self, head: Head) -> None:
        self._head = head
        self._digest = Digest()
        self.counts: Counter[str] = Counter()

    def opening(self, library: str) -> str:
        """The first line.

        Args:
            library: The release that writes it.
        """
        head = self._head
        about = {"format": FORMAT, "version": VERSION, "library": library}
        whose = {"session": head.session_id, "user": head.user_id}
        return self._digest.summed(compact_json({**about, "at": _told(datetime.now(UTC)), **whose}))

    def head(self) -> str:
        """The second line."""
        head = self._head
        system, summary = head.system, head.summary
        fields = {
            "end": head.end,
            "total": head.total,
            "expired": head.expired,
            "start": head.start,
            "start_total": head.start_total,
            "pinned": list(head.pinned),
            "pinned_tokens": head.pinned_tokens,
            "system_at": None if system is None else _told(system.created_at),
            "system_tokens": head.system_tokens,
            "summary": None if summary is None else asdict(summary),
            "cursors": head.cursors,
            "begun": _told(head.created_at),
        }
        return self._line("head", fields, system="null" if system is None else system.to_json())

    def entry(self, entry: Entry) -> str:
        """A message of the log, as it is stored."""
        fields = {
            "seq": entry.seq,
            "tokens": entry.tokens,
            "total": entry.total,
            "encoding": entry.encoding,
            "at": _told(entry.created_at),
        }
        return self._line("entry", fields, message=entry.message.to_json())

    def key(self, key: KeptKey) -> str:
        """A key under which messages of the log were appended."""
        fields = {
            "name": key.name,
            "digest": key.digest,
            "seq": key.seq,
            "end": key.end,
            "total": key.total,
            "at": _told(key.at),
        }
        return self._line("key", fields)

    def fact(self, block: str, record: Record) -> str:
        """A record of the fact store."""
        return self._line("fact", self._record(block, record))

    def vectors(self, block: str, dimension: int, model: str) -> str:
        """What comes before a block's vectors."""
        return self._line("vectors", {"block": block, "dimension": dimension, "model": model})

    def vector(self, block: str, record: Record, traits: bytes) -> str:
        """A record of a vector store, with its traits as stores keep them."""
        fields = self._record(block, record)
        return self._line("vector", {**fields, "traits": b64encode(traits).decode("ascii")})

    def dead_letter(self, letter: DeadLetter) -> str:
        """Messages that a block gave up."""
        fields = {
            "block": letter.block,
            "first": letter.first,
            "last": letter.last,
            "attempts": letter.attempts,
            "error": letter.error,
            "since": _told(letter.since),
        }
        return self._line("dead_letter", fields)

    def forgotten(self, record: Record) -> str:
        """What is to stay forgotten, as its record says it."""
        place = {"first": record.first, "last": record.last, "at": _told(record.created_at)}
        return self._line("forgotten", {**place, **record.metadata})

    def value(self, record: Record) -> str:
        """A value of the session's own: what it is called, or any other."""
        told = record.metadata
        name, vectors, count = told.get("vectors") or (None, None, None)
        fields = {
            "namespace": told["ns"],
            "key": record.text,
            "value": told["value"],
            "begun": told["begun"],
            "at": _told(record.created_at),
            "ttl": told.get("ttl"),
            "until": told.get("until"),
            "meaning": name and {"embedder": name, "count": count, "vectors": vectors},
        }
        return self._line("value", fields)

    def end(self) -> str:
        """The last line."""
        counts = dict(self.counts)
        return self._line("end", {"counts": counts, "sha256": self._digest.whole()})

    def _record(self, block: str, record: Record) -> dict[str, Any]:
        head = self._head
        own = record.owner == Scope(None, head.session_id).owner
        return {
            "block": block,
            "id": record.id,
            "of": "session" if own else "user",
            "first": record.first,
            "last": record.last,
            "text": record.text,
            "sources": list(record.sources),
            "at": _told(record.created_at),
            "metadata": record.metadata,
        }

    def _line(self, kind: str, fields: dict[str, Any], **written: str) -> str:
        """A line of fields, and of others that are JSON already."""
        self.counts[kind] += 1
        body = compact_json({"kind": kind, **fields})
        more = "".join(f',"{name}":{text}' for name, text in written.items())
        return self._digest.summed(f"{body[:-1]}{more}}}")


def owners_of(head: Head) -> Sequence[str]:
    """Under whom blocks keep what is a session's: its user, and the session itself."""
    return tuple(dict.fromkeys(Scope(user, head.session_id).owner for user in (head.user_id, None)))


def _told(moment: datetime) -> str:
    return moment.isoformat()
