"""What is kept of a fact: claims, of which none is ever changed. What holds follows from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from agent_memory.core import reserved

LinkKind = Literal["update", "contradict", "end"]
"""What a claim says of an older fact. "update": both are values of the same thing, each in its
time. "contradict": the older was never so. "end": the older ended when this one did."""

FORGOTTEN = reserved.FORGOTTEN.name
"""Under which name stores keep what is to stay forgotten."""


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
class Forgotten:
    """What is to stay forgotten, though the log still says it. It holds nothing of the text.

    Attributes:
        fact: The fact's id; None for all that comes from the messages.
        session_id: The session.
        first: Seq of the first message.
        last: Seq of the last.
        span: Which part of the one message; None for all of it.
        at: When it was forgotten.
        why: What whoever asked for it said.
        spared: Ids of the claims that rest on the same part and stay.
    """

    fact: str | None
    session_id: str
    first: int
    last: int
    span: tuple[int, int] | None
    at: datetime
    why: str
    spared: tuple[str, ...] = ()

    def covers(self, claim: Claim) -> bool:
        """Whether a claim is to stay forgotten: all that quotes from there is, but what is spared.

        In other words than before, a model may find the same again.
        """
        if claim.session_id != self.session_id or not self.first <= claim.seq <= self.last:
            return False
        if self.span is None:
            return True
        return claim.id not in self.spared and overlap(self.span, claim.span)


def overlap(one: tuple[int, int], other: tuple[int, int]) -> bool:
    """Whether two parts of a text have something in common."""
    return one[0] < other[1] and other[0] < one[1]


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
    forgotten: Sequence[Forgotten] = ()
    remains: Sequence[Claim] = ()
