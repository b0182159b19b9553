"""Storage of claims and their vectors, and validation of imported claims."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from agent_memory.core.records import Lease, Record, Span
from agent_memory.core.system_collections import PROMPT_TEXTS
from agent_memory.errors import ConfigError, InvalidInput, ModelError
from agent_memory.ltm_blocks.base import Resources, batch_id, record_id
from agent_memory.ltm_blocks.extractive.history.claims import (
    RECALLED,
    Batch,
    Claim,
    Journal,
    journal_of,
    record_of_batch,
    record_of_claim,
    recorded,
)
from agent_memory.ltm_blocks.extractive.history.fact import Fact
from agent_memory.ltm_blocks.registry import Tombstone, bury, overlap, tombstones
from agent_memory.ltm_blocks.versions import Versioned, new_version, renew
from agent_memory.stores.base import RecordStore

if TYPE_CHECKING:
    import numpy as np

    from agent_memory.models.embedders.best_effort import BestEffort

_TRIES = 5


class Keeper:
    """Reads and writes one block's journals. Decoded records are cached."""

    def __init__(self, store: RecordStore, block: str) -> None:
        self._store = store
        self._block = block
        self._entries = Versioned(lambda records: [recorded(record) for record in records], len)

    def read(self, owner: str, without: Span | None = None) -> Journal:
        """Return an owner's journal, without the claims from the messages of `without`."""
        erased = tombstones(self._store, self._block, owner)
        journal = journal_of(self._entries.read(self._store, self._block, owner), erased)
        if without is None:
            return journal
        claims = [each for each in journal.claims if not without.holds(each.session_id, each.seq)]
        return replace(journal, claims=claims)

    def recalled(self, owner: str) -> dict[str, int]:
        """Return for each of an owner's facts, by id, the number of contexts that included it."""
        record = self._store.record(self._block, _counts_id(self._block, owner))
        return {} if record is None else dict(record.metadata[RECALLED])

    def count(self, owner: str, ids: Sequence[str], existing: Collection[str]) -> None:
        """Count one more context for the facts `ids`. Drop the counts of facts not in `existing`.

        This context is not counted if other processes change the record during each of 5 attempts.
        """
        name = _counts_id(self._block, owner)
        for _ in range(_TRIES):
            before = self._store.record(self._block, name)
            counts = {} if before is None else before.metadata[RECALLED]
            counts = {fact: count for fact, count in counts.items() if fact in existing}
            counts |= {fact: counts.get(fact, 0) + 1 for fact in ids}
            last = None if before is None else before.last
            metadata = {RECALLED: counts}
            now = datetime.now(UTC)
            record = Record(name, owner, "", 0, (last or 0) + 1, RECALLED, (), now, metadata)
            if self._store.swap_record(self._block, record, last):
                return

    def write(
        self, owner: str, span: Span, claims: Sequence[Claim], batch: Batch, lease: Lease | None
    ) -> None:
        """Replace a batch's claims. The caller holds the owner's lock."""
        name = batch_id(self._block, owner, *span)
        records = [record_of_claim(claim, owner) for claim in claims]
        records += [record_of_batch(batch, name, owner), new_version(owner)]
        self._store.put_records(self._block, records, replacing=span, lease=lease)

    def forget(self, owner: str, claims: Sequence[Claim], tombstones: Sequence[Tombstone]) -> None:
        """Delete claims, and the prompt logs of their sessions, which may quote the claims."""
        bury(self._store, self._block, owner, tombstones)
        for claim in claims:
            self._store.delete_records(self._block, record_id=claim.id)
        for session_id in {claim.session_id for claim in claims}:
            self._store.delete_records(PROMPT_TEXTS.name, session_id=session_id)
        renew(self._store, self._block, owner)


def _counts_id(block: str, owner: str) -> str:
    return record_id(block, owner, RECALLED)


def tombstone_of(claim: Claim, left: Sequence[Claim], why: str) -> Tombstone:
    """Return a tombstone for `claim`. It spares claims of `left` with an overlapping quote."""
    spared = tuple(
        name
        for other in left
        if (other.session_id, other.seq) == (claim.session_id, claim.seq)
        and overlap(other.span, claim.span)
        for name in (other.id, other.content_id)
        if name != claim.content_id
    )
    place = (claim.session_id, claim.seq, claim.seq, claim.span)
    return Tombstone(claim.fact, *place, datetime.now(UTC), why, spared)


def vectors_of(facts: Sequence[Fact], claims: Sequence[Claim], embedder: BestEffort) -> np.ndarray:
    """Return the (n, dimension) unit vectors of facts; (n, 0) while the embedder is down.

    Facts are then compared by words alone, so an outage stops neither absorbing nor recall.
    """
    import numpy as np

    if not facts:
        return np.zeros((0, 0), np.float32)
    by_text = {(claim.fact, claim.text): claim for claim in claims}
    stated = [by_text[fact.id, fact.text] for fact in facts]
    name = embedder.name
    missing = [claim for claim in stated if not claim.vector or claim.embedder != name]
    new = embedder.embed([claim.text for claim in missing])
    if missing and not new.shape[1]:
        return np.zeros((len(facts), 0), np.float32)
    fresh = dict(zip([claim.id for claim in missing], new, strict=True))
    return np.stack([
        fresh[claim.id] if claim.id in fresh
        else np.frombuffer(claim.vector, np.float16).astype(np.float32)
        for claim in stated
    ])  # fmt: skip


def with_vectors(claims: Sequence[Claim], embedder: BestEffort) -> tuple[list[Claim], np.ndarray]:
    """Return the claims with their vectors, and the vectors as a matrix."""
    vectors = embedder.embed([claim.text for claim in claims])
    if not vectors.shape[1]:
        return list(claims), vectors
    rows = zip(claims, vectors.astype("float16"), strict=True)
    name = embedder.name
    return [replace(claim, embedder=name, vector=row.tobytes()) for claim, row in rows], vectors


def checked_record(record: Record, resources: Resources) -> Record:
    """Validate the record of a claim or a batch from a snapshot. Drop an invalid vector."""
    decoded = recorded(record)
    if isinstance(decoded, Batch):
        if not decoded.first:
            raise InvalidInput("the record has no source message")
        return record
    if decoded is None or record.first != record.last or record.sources != (record.first,):
        raise InvalidInput("a fact must come from one message")
    if not decoded.vector or _is_valid(decoded, resources):
        return record
    return record_of_claim(replace(decoded, vector=b"", embedder=""), record.owner)


def _is_valid(claim: Claim, resources: Resources) -> bool:
    """Return whether a claim's vector is well formed.

    The dimension is checked only for vectors of the configured embedder. Vectors of other embedders
    are never compared.
    """
    import numpy as np

    try:
        embedder = resources.embedders(None)
        if claim.embedder == embedder.name and len(claim.vector) != 2 * embedder.dimension:
            return False
    except (ModelError, ConfigError):
        return False
    is_even = len(claim.vector) % 2 == 0
    return is_even and bool(np.isfinite(np.frombuffer(claim.vector, np.float16)).all())
