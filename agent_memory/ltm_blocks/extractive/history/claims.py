"""What is kept of a fact: claims, of which none is ever changed. What holds follows from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from agent_memory.ltm_blocks.extractive.history.periods import day_of
from agent_memory.ltm_blocks.tombstones import Tombstone

LinkKind = Literal["update", "refine", "contradict", "end"]
"""What a claim says of an older fact. "update": both are values of the same thing, each in its
time. "refine": this one says all that the older does, and more, and stands for both.
"contradict": the older was never so. "end": the older ended when this one did."""

Relation = Literal["same", "update", "refine", "end", "contradict", "deny"]
"""What a model says a finding has to do with an older fact: "same" ties it to no other, and "deny"
contradicts without putting anything in its place."""

Kind = Literal["event", "state", "plan", ""]
"""An event happened, a state goes on, a plan is to happen."""


@dataclass(frozen=True, slots=True)
class Link:
    """What a claim says of an older fact.

    Attributes:
        kind: What.
        fact: The older fact's id.
    """

    kind: LinkKind
    fact: str


@dataclass(frozen=True, slots=True)
class Claim:
    """One thing that was said in one message.

    Attributes:
        id: Its own id.
        fact: The fact that it states: its own id where it was the first to, else the first one's.
        text: A sentence that stands alone.
        subject: Of whom or what it tells.
        category: One word.
        confidence: How sure the model was, 0 to 1.
        role: The role that it comes from.
        valid_from: Since when it is said to hold; None where nobody knows.
        valid_to: Until when, that moment excluded; None for no end.
        recorded_at: When it was said.
        session_id: The session.
        seq: The message.
        quote: What the message says, verbatim.
        span: From where to where the quote reaches in the message, white space counted once.
        model: The model that found it.
        prompt: The version of the prompt that it was asked with.
        links: What it says of older facts.
        field: The field of a profile that it fills.
        value: With what, as JSON.
        alone: Whether the field holds one value at a time.
        embedder: Name of the embedder that `vector` is of.
        vector: What it means, float16.
        place: Which of a batch's findings it was.
        kind: What it tells of.
        when: The words that tell its time, where they are too vague for a date.
    """

    id: str
    fact: str
    text: str
    subject: str
    category: str
    confidence: float
    role: str
    valid_from: datetime | None
    valid_to: datetime | None
    recorded_at: datetime
    session_id: str
    seq: int
    quote: str
    span: tuple[int, int]
    model: str
    prompt: str
    links: tuple[Link, ...] = ()
    field: str | None = None
    value: Any = None
    alone: bool = False
    embedder: str = ""
    vector: bytes = b""
    place: int = 0
    kind: Kind = ""
    when: str = ""

    @property
    def begins(self) -> datetime | None:
        """Since when it is known to hold: where its beginning is not said, since it was told.

        None where only its end is known.
        """
        return since(self.valid_from, self.valid_to, self.recorded_at)

    @property
    def ends(self) -> datetime | None:
        """Until when it holds: an event without a date is over when it is told."""
        if self.kind == "event" and self.valid_from is None and self.valid_to is None:
            return day_of(self.recorded_at) + timedelta(days=1)
        return self.valid_to


def since(begin: datetime | None, end: datetime | None, said: datetime) -> datetime | None:
    """See `Claim.begins`."""
    told = day_of(said)
    return told if begin is None and (end is None or told < end) else begin


@dataclass(frozen=True, slots=True)
class Batch:
    """What came of one batch of messages.

    Attributes:
        session_id: The session.
        first: Seq of its first message.
        last: Seq of its last.
        at: When its last message was said.
        model: The model that was asked; empty where none was.
        prompt: The version of the prompt.
        found: How many facts the model told.
        refused: How many of them were refused, by the reason.
    """

    session_id: str
    first: int
    last: int
    at: datetime
    model: str
    prompt: str
    found: int
    refused: dict[str, int]


@dataclass(frozen=True, slots=True)
class Journal:
    """All that is kept of one owner's facts.

    Attributes:
        claims: What was said.
        batches: What came of each batch.
        forgotten: What is to stay forgotten.
        remains: Claims that are to, and are kept still: whoever forgot them was cut short.
    """

    claims: Sequence[Claim] = ()
    batches: Sequence[Batch] = ()
    forgotten: Sequence[Tombstone] = ()
    remains: Sequence[Claim] = ()


def covers(tombstone: Tombstone, claim: Claim) -> bool:
    """Whether a claim is to stay forgotten."""
    return tombstone.covers(claim.id, claim.session_id, claim.seq, claim.span)
