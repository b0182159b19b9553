"""Claims as the records that fact stores keep, and back. Pure."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from dataclasses import fields
from datetime import datetime
from typing import Any

from agent_memory.core.records import Record
from agent_memory.ltm_blocks.extractive.history.claims import Batch, Claim, Journal, Link, covers
from agent_memory.ltm_blocks.tombstones import Tombstone

_BATCH = "batch"
RECALLED = "recalled"
"""What a record of counts has in its metadata: by the facts' ids, how many contexts had each."""
_IN_RECORD = {"id", "text", "session_id", "seq", "recorded_at"}
Recorded = Claim | Batch | None
"""What a record says; None for one of counts."""
_KEPT = [field.name for field in fields(Claim) if field.name not in _IN_RECORD]


def record_of_claim(claim: Claim, owner: str) -> Record:
    """The record of a claim."""
    kept = {name: getattr(claim, name) for name in _KEPT}
    kept["valid_from"] = _written(claim.valid_from)
    kept["valid_to"] = _written(claim.valid_to)
    kept["links"] = [[link.kind, link.fact] for link in claim.links]
    kept["span"] = list(claim.span)
    kept["vector"] = base64.b64encode(claim.vector).decode("ascii")
    return Record(
        id=claim.id,
        owner=owner,
        session_id=claim.session_id,
        first=claim.seq,
        last=claim.seq,
        text=claim.text,
        sources=(claim.seq,),
        created_at=claim.recorded_at,
        metadata=kept,
    )


def record_of_batch(batch: Batch, record_id: str, owner: str) -> Record:
    """The record of what came of a batch."""
    return Record(
        id=record_id,
        owner=owner,
        session_id=batch.session_id,
        first=batch.first,
        last=batch.last,
        text=_BATCH,
        sources=(),
        created_at=batch.at,
        metadata={
            _BATCH: {
                "model": batch.model,
                "prompt": batch.prompt,
                "found": batch.found,
                "refused": batch.refused,
            }
        },
    )


def recorded(record: Record) -> Recorded:
    """What one record of an owner says."""
    if RECALLED in record.metadata:
        return None
    return _batch(record) if _BATCH in record.metadata else _claim(record)


def journal_of(entries: Iterable[Recorded], forgotten: Sequence[Tombstone]) -> Journal:
    """What the records of an owner say together.

    A claim that is to stay forgotten is set apart, should its record be there still.
    """
    claims: list[Claim] = []
    batches: list[Batch] = []
    remains: list[Claim] = []
    for one in entries:
        if isinstance(one, Batch):
            batches.append(one)
        elif one is not None:
            covered = any(covers(gone, one) for gone in forgotten)
            (remains if covered else claims).append(one)
    return Journal(claims, batches, forgotten, remains)


def _claim(record: Record) -> Claim:
    kept: dict[str, Any] = dict(record.metadata)
    kept["valid_from"] = _read(kept["valid_from"])
    kept["valid_to"] = _read(kept["valid_to"])
    kept["links"] = tuple(Link(kind, fact) for kind, fact in kept["links"])
    kept["span"] = tuple(kept["span"])
    kept["vector"] = base64.b64decode(kept["vector"])
    return Claim(
        id=record.id,
        text=record.text,
        session_id=record.session_id,
        seq=record.first,
        recorded_at=record.created_at,
        **kept,
    )


def _batch(record: Record) -> Batch:
    kept = record.metadata[_BATCH]
    return Batch(
        record.session_id, record.first, record.last, record.created_at,
        kept["model"], kept["prompt"], kept["found"], kept["refused"],
    )  # fmt: skip


def _written(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()


def _read(moment: str | None) -> datetime | None:
    return None if moment is None else datetime.fromisoformat(moment)
