"""`Change`: every change to what is known of an owner, with the why. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, get_args

from agent_memory.ltm_blocks.extractive.history.claims import Journal
from agent_memory.ltm_blocks.extractive.history.fact import Evidence, Fact

What = Literal[
    "learned",
    "said again",
    "refined",
    "updated",
    "ended",
    "contradicted",
    "outranked",
    "refused",
    "forgotten",
]


@dataclass(frozen=True, slots=True)
class Change:
    """One change.

    Attributes:
        at: When what brought it was said; for "forgotten", when that was asked for (UTC).
        what: "learned": a new fact. "said again": more evidence for one. "refined", "updated",
            "ended", "contradicted", "outranked": see `Fact.why`. "refused": findings of a model
            that were not stored. "forgotten": on request.
        why: A sentence.
        block: Name of the block.
        fact: The fact's id; None where there is none, or many were meant.
        text: The fact's text; empty for what was refused or forgotten, of which none is kept.
        evidence: The message that brought the change, where one did.
        session_id: The session.
        first: Seq of the first message concerned.
        last: Seq of the last.
    """

    at: datetime
    what: What
    why: str
    block: str
    fact: str | None
    text: str
    evidence: Evidence | None
    session_id: str
    first: int
    last: int


_ORDER: tuple[What, ...] = get_args(What)
_REASONS = {
    "message": "named a message that is not in the batch",
    "quote": "quoted what the message does not say",
    "invented": "named a number or a code that nobody said",
    "forgotten": "say what is to stay forgotten",
    "category": "are of a category that is not kept",
    "confidence": "were guesses",
    "chatter": "say nothing but a mood or a courtesy",
    "value": "do not fit the field",
    "echo": "only repeat, in another role than the user's, what was known",
}


def changes(block: str, facts: Sequence[Fact], journal: Journal) -> list[Change]:
    """All changes, oldest first.

    Args:
        block: The block's name.
        facts: All facts, superseded ones too.
        journal: What they follow from.
    """
    found = [change for fact in facts for change in _of_fact(block, fact, facts)]
    for batch in journal.batches:
        for reason, count in batch.refused.items():
            told = f"{count} of {batch.found} findings {_REASONS.get(reason, reason)}"
            place = (batch.session_id, batch.first, batch.last)
            found.append(Change(batch.at, "refused", told, block, None, "", None, *place))
    for gone in journal.forgotten:
        place = (gone.session_id, gone.first, gone.last)
        why = gone.why or "on request"
        found.append(Change(gone.at, "forgotten", why, block, gone.fact, "", None, *place))
    return sorted(found, key=lambda change: (change.at, _ORDER.index(change.what)))


def _of_fact(block: str, fact: Fact, facts: Sequence[Fact]) -> list[Change]:
    found = []
    for place, one in enumerate(fact.evidence):
        why = f'{one.role} said: "{one.quote}"'
        what: What = "said again" if place else "learned"
        at = (one.session_id, one.seq, one.seq)
        found.append(Change(one.recorded_at, what, why, block, fact.id, fact.text, one, *at))
    after = next((other for other in facts if other.id == fact.superseded_by), None)
    if after is not None and fact.superseded_at is not None and fact.why:
        one = after.evidence[0]
        why = f"{_WHY[fact.why]}: {after.text}"
        at = (one.session_id, one.seq, one.seq)
        found.append(Change(fact.superseded_at, fact.why, why, block, fact.id, fact.text, one, *at))
    return found


_WHY = {
    "refined": "another says all of it, and more",
    "updated": "another fact took its place",
    "ended": "it was said to have ended",
    "contradicted": "it was said never to have been so",
    "outranked": "what a weightier role said holds",
}
