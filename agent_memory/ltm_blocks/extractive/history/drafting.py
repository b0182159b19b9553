"""From what a model found to claims, not tied to older facts yet; what does not stand is refused.
Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from agent_memory.ltm_blocks.extractive.history.candidates import Candidate
from agent_memory.ltm_blocks.extractive.history.chatter import is_chatter
from agent_memory.ltm_blocks.extractive.history.claims import Claim, Relation, covers
from agent_memory.ltm_blocks.extractive.history.grounding import Grounded, grounded
from agent_memory.ltm_blocks.extractive.history.sources import Said
from agent_memory.ltm_blocks.extractive.history.timing import Times, times
from agent_memory.ltm_blocks.tombstones import Tombstone


@dataclass(frozen=True, slots=True)
class Rules:
    """What is kept.

    Attributes:
        weights: What each role's word weighs.
        categories: The categories to keep; none for all.
        refused: The categories to refuse.
        least: The confidence below which a finding is a guess.
        model: The model that found it.
        prompt: The version of the prompt.
    """

    weights: Mapping[str, int]
    categories: Collection[str]
    refused: Collection[str]
    least: float
    model: str
    prompt: str


@dataclass(frozen=True, slots=True)
class Draft:
    """A claim that is not tied to older facts yet.

    Attributes:
        claim: The claim.
        corrects: It says that the field's value was never so.
        relation: What the model said that it has to do with known facts; empty for nothing.
        known: The ids of those facts.
    """

    claim: Claim
    corrects: bool
    relation: Relation | Literal[""] = ""
    known: tuple[str, ...] = ()


def drafts(
    found: Sequence[Candidate],
    shown: Sequence[Said],
    forgotten: Collection[Tombstone],
    rules: Rules,
    id_of: Callable[[Said, Candidate], str],
) -> tuple[list[Draft], Counter[str]]:
    """The findings that stand, in the order of the messages, and how many do not, by the reason."""
    refused: Counter[str] = Counter()
    kept: dict[str, Draft] = {}
    for place, one in enumerate(found):
        stands = _judged(one, shown, rules)
        if isinstance(stands, str):
            refused[stands] += 1
            continue
        told = times(one, stands.said, shown)
        draft = _draft(one, stands, told, id_of(stands.said, one), rules, place)
        if any(covers(one, draft.claim) for one in forgotten):
            refused["forgotten"] += 1
            continue
        kept.setdefault(draft.claim.id, draft)
    return sorted(kept.values(), key=lambda draft: draft.claim.seq), refused


def _judged(one: Candidate, shown: Sequence[Said], rules: Rules) -> Grounded | str:
    if not one.fits:
        return "value"
    if one.field is None:
        if one.category in rules.refused:
            return "category"
        if rules.categories and one.category not in rules.categories:
            return "category"
    if one.confidence < rules.least:
        return "confidence"
    stands = grounded(one.number, one.quote, one.text, shown, rules.weights)
    if isinstance(stands, Grounded) and one.field is None and is_chatter(one, shown):
        return "chatter"
    return stands


def _draft(
    one: Candidate, stands: Grounded, told: Times, name: str, rules: Rules, place: int
) -> Draft:
    entry = stands.said.entry
    begin, end, when = told
    claim = Claim(
        id=name,
        fact=name,
        text=one.text,
        subject=one.subject,
        category=one.category,
        confidence=one.confidence,
        role=stands.role,
        valid_from=begin,
        valid_to=end,
        recorded_at=entry.created_at,
        session_id=entry.session_id,
        seq=entry.seq,
        quote=stands.quote,
        span=stands.span,
        model=rules.model,
        prompt=rules.prompt,
        place=place,
        field=one.field,
        value=one.value,
        alone=one.alone,
        kind=one.kind,
        when=when,
    )
    return Draft(claim, one.corrects, one.relation, one.known)
