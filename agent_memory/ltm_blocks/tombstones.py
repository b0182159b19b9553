"""What is to stay forgotten, though the log still says it: a tombstone beside a block's records.

The engine drops tombstones with their session and user, shortens them where a log is cut, and
carries them in snapshots. Blocks heed them when they absorb.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from agent_memory.core import reserved
from agent_memory.core.records import Record
from agent_memory.ltm_blocks.base import record_id

if TYPE_CHECKING:
    from agent_memory.stores.base import RecordStore

FORGOTTEN = reserved.FORGOTTEN.name
"""Under which name stores keep tombstones."""


@dataclass(frozen=True, slots=True)
class Tombstone:
    """What is to stay forgotten. It holds nothing of the text.

    Attributes:
        fact: Id of what is forgotten; None for all that comes from the messages.
        session_id: The session.
        first: Seq of the first message.
        last: Seq of the last.
        span: Which part of the one message; None for all of it.
        at: When it was forgotten.
        why: What whoever asked for it said.
        spared: Ids of the records that rest on the same part and stay.
    """

    fact: str | None
    session_id: str
    first: int
    last: int
    span: tuple[int, int] | None
    at: datetime
    why: str
    spared: tuple[str, ...] = ()

    def covers(self, record_id: str, session_id: str, seq: int, span: tuple[int, int]) -> bool:
        """Whether a record is to stay forgotten: all that quotes from there is, but what is spared.

        In other words than before, a model may find the same again.

        Args:
            record_id: The record's id.
            session_id: The session it comes from.
            seq: The message.
            span: From where to where it quotes the message.
        """
        if session_id != self.session_id or not self.first <= seq <= self.last:
            return False
        if self.span is None:
            return True
        return record_id not in self.spared and overlap(self.span, span)


def overlap(one: tuple[int, int], other: tuple[int, int]) -> bool:
    """Whether two parts of a text have something in common."""
    return one[0] < other[1] and other[0] < one[1]


def record_of(tombstone: Tombstone, block: str, owner: str) -> Record:
    """The record of a block's tombstone; its id is derived from what it says."""
    one = tombstone
    return Record(
        id=record_id(block, owner, one.session_id, one.first, one.last, one.span, one.fact),
        owner=owner,
        session_id=one.session_id,
        first=one.first,
        last=one.last,
        text=FORGOTTEN,
        sources=(),
        created_at=one.at,
        metadata={
            "block": block,
            "fact": one.fact,
            "span": None if one.span is None else list(one.span),
            "why": one.why,
            "spared": list(one.spared),
        },
    )


def tombstone_of(record: Record) -> Tombstone:
    """The tombstone that a record says."""
    kept = record.metadata
    span = kept["span"]
    return Tombstone(
        kept["fact"],
        record.session_id,
        record.first,
        record.last,
        None if span is None else (span[0], span[1]),
        record.created_at,
        kept["why"],
        tuple(kept["spared"]),
    )


def tombstones(store: RecordStore, block: str, owner: str) -> list[Tombstone]:
    """What a block is not to learn again of an owner."""
    records = store.records(FORGOTTEN, owner)
    return [tombstone_of(one) for one in records if one.metadata["block"] == block]


def bury(store: RecordStore, block: str, owner: str, gone: Sequence[Tombstone]) -> None:
    """Keep tombstones, before what they are of is erased."""
    store.put_records(FORGOTTEN, [record_of(one, block, owner) for one in gone])
