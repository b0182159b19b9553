"""The facts of a store, and the vectors of its blocks, as records with checksums."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from agent_memory.core.records import Record
from agent_memory.engine.system_records import stays_behind
from agent_memory.engine.transfer.migration.checksums import record_digest
from agent_memory.stores.base import RecordStore, VectorStore
from agent_memory.stores.damage import whole


@dataclass(frozen=True, slots=True)
class Kept:
    """A record as a store keeps it.

    Attributes:
        block: The block's name.
        record: The record.
        digest: Its checksum.
        blob: Its features as bytes; none of a fact.
    """

    block: str
    record: Record
    digest: bytes
    blob: bytes = b""

    @property
    def key(self) -> tuple[str, str]:
        """What tells it from others of its set."""
        return self.block, self.record.id


class RecordSet(Protocol):
    """A part of a store's records."""

    def read(self) -> Iterator[Kept]:
        """All of them, in no order; read some at a time."""
        ...

    def put(self, records: Sequence[Kept]) -> None:
        """Keep these, over those with their ids."""
        ...

    def remove(self, keys: Collection[tuple[str, str]]) -> None:
        """Remove these; others may go with them."""
        ...


class FactRecords:
    """All facts of a store, but for its notes of itself.

    Args:
        store: The store.
        leaving: Sessions whose deletion has begun: theirs are left out.
    """

    def __init__(self, store: RecordStore, leaving: Collection[str]) -> None:
        self._store = store
        self._leaving = leaving

    def read(self) -> Iterator[Kept]:
        for block, record in whole(self._store.all_records()):
            if not stays_behind(block, record) and record.session_id not in self._leaving:
                yield Kept(block, record, record_digest(block, record))

    def put(self, records: Sequence[Kept]) -> None:
        by_block: dict[str, list[Record]] = {}
        for kept in records:
            by_block.setdefault(kept.block, []).append(kept.record)
        for block, some in by_block.items():
            self._store.put_records(block, some)

    def remove(self, keys: Collection[tuple[str, str]]) -> None:
        for block, record_id in keys:
            self._store.delete_records(block, record_id=record_id)


class VectorRecords:
    """The vectors of one block.

    Args:
        store: The store.
        block: The block's name.
        leaving: As for `FactRecords`.
    """

    def __init__(self, store: VectorStore, block: str, leaving: Collection[str]) -> None:
        self._store = store
        self._block = block
        self._leaving = leaving

    def read(self) -> Iterator[Kept]:
        from agent_memory.retrieval.segments import rounded
        from agent_memory.stores.blobs import blobs_of

        for records, features in whole(self._store.all_vectors(self._block)):
            blobs, alike = blobs_of(records, features), blobs_of(records, rounded(features))
            for record, blob, same in zip(records, blobs, alike, strict=True):
                if record.session_id not in self._leaving:
                    digest = record_digest(self._block, record, same)
                    yield Kept(self._block, record, digest, blob)

    def put(self, records: Sequence[Kept]) -> None:
        from agent_memory.stores.blobs import features_of

        if records:
            features = features_of([kept.blob for kept in records])
            self._store.put_vectors(self._block, [kept.record for kept in records], features)

    def remove(self, keys: Collection[tuple[str, str]]) -> None:
        """See `RecordSet.remove`. What has their owner and session goes with them."""
        found = (kept.record for kept in self.read() if kept.key in keys)
        for owner, session_id in {(record.owner, record.session_id) for record in found}:
            self._store.delete_vectors(self._block, owner=owner, session_id=session_id)
