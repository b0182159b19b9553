"""Checksums of what a store holds: the same for the same, whatever database holds it. Pure."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from agent_memory.core.once import KeptKey
from agent_memory.core.records import Entry, Head, Record
from agent_memory.stores.coding import head_fields, to_micros

_MODULUS = 2**256
# ASCII, so that lone surrogates can be encoded
_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode


@dataclass(slots=True)
class Sums:
    """How many records there are of each kind, and the sum of their checksums: their order tells
    nothing.

    Attributes:
        counts: By kind.
        sums: By kind, modulo 2 ** 256.
    """

    counts: Counter[str] = field(default_factory=Counter)
    sums: Counter[str] = field(default_factory=Counter)

    def add(self, kind: str, digest: bytes) -> None:
        """Take in one record's."""
        self.counts[kind] += 1
        self.sums[kind] = (self.sums[kind] + int.from_bytes(digest)) % _MODULUS

    def differing(self, other: Sums) -> list[str]:
        """The kinds of which the other has not the same records, in order."""
        kinds = self.counts.keys() | other.counts.keys()
        return sorted(kind for kind in kinds if self._of(kind) != other._of(kind))

    def _of(self, kind: str) -> tuple[int, int]:
        return self.counts[kind], self.sums[kind]


def head_digest(head: Head) -> bytes:
    """Of all of a head but its version, which counts the changes within one store."""
    fields = {
        **head_fields(head),
        "session_id": head.session_id,
        "user_id": head.user_id,
        "end": head.end,
        "total": head.total,
        "deleting": head.deleting,
        "created_at": to_micros(head.created_at),
    }
    if head.system is not None:  # its JSON may be written in more than one way
        fields["system"] = head.system.to_dict()
    return _digest(fields)


def session_digest(head: Head, entries: Iterable[Entry], keys: Iterable[KeptKey] = ()) -> bytes:
    """Of a head, as above, the log, and its keys in order."""
    whole = hashlib.sha256(head_digest(head))
    for entry in entries:
        whole.update(_entry_digest(entry))
    for key in keys:
        place = [key.seq, key.end, key.total, to_micros(key.at)]
        whole.update(_digest([key.name, key.digest, *place]))
    return whole.digest()


def record_digest(block: str, record: Record, blob: bytes = b"") -> bytes:
    """Of a block's record, and of its features as bytes, if it has any."""
    fields = [
        *(block, record.id, record.owner, record.session_id, record.first, record.last),
        *(record.text, record.sources, to_micros(record.created_at), record.metadata),
    ]
    return hashlib.sha256(_digest(fields) + blob).digest()


def _entry_digest(entry: Entry) -> bytes:
    return _digest(
        [
            *(entry.session_id, entry.seq, entry.message.to_dict(), entry.tokens, entry.total),
            *(entry.encoding, to_micros(entry.created_at)),
        ]
    )


def _digest(value: object) -> bytes:
    return hashlib.sha256(_canonical(value).encode()).digest()
