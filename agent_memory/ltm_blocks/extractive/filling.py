"""What becomes of drafts for the fields of a profile, by code alone."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from agent_memory.ltm_blocks.extractive.history.claims import Claim, Link
from agent_memory.ltm_blocks.extractive.history.drafting import Draft
from agent_memory.ltm_blocks.extractive.history.fact import Fact
from agent_memory.ltm_blocks.extractive.history.likeness import key_of
from agent_memory.ltm_blocks.extractive.history.periods import BEGINNING


def settle_fields(
    drafts: Sequence[Draft],
    facts: Sequence[Fact],
    current: Collection[str],
    weights: Mapping[str, int],
) -> tuple[list[Claim], int]:
    """The claims of drafts for fields, tied to what is known; and how many only echo.

    No model is needed: a field that holds one value holds the one that began last.
    """
    holders = [
        _Holder(fact.id, fact.field, fact.value, weights.get(fact.role, 0), fact.periods[0][0])
        for fact in facts
        if fact.id in current
    ]
    settled: list[Claim] = []
    echoes = 0
    for draft in drafts:
        claim = draft.claim
        own = _Holder(claim.id, claim.field, claim.value, weights.get(claim.role, 0), claim.begins)
        of_field = sorted((one for one in holders if one.field == own.field), key=_order)
        # a field that holds one value says again only what it holds last
        near = [one for one in (of_field[-1:] if claim.alone else of_field) if one.says(own)]
        if near and claim.begins is None:  # only its end is known
            claim = replace(claim, links=(Link("end", near[-1].fact),))
        elif near:
            if own.weight < near[-1].weight:
                echoes += 1
                continue
            claim = replace(claim, fact=near[-1].fact)
        elif draft.corrects:
            wrong = of_field if claim.alone else _denied(claim, of_field)
            claim = replace(claim, links=tuple(Link("contradict", one.fact) for one in wrong))
        if claim.fact == claim.id:
            holders.append(own)
        settled.append(claim)
    return settled, echoes


@dataclass(frozen=True, slots=True)
class _Holder:
    """A value that a field holds."""

    fact: str
    field: str | None
    value: Any
    weight: int
    begin: datetime | None

    def says(self, other: _Holder) -> bool:
        """Whether it says already what another says, at least as early."""
        return self.value == other.value and (
            other.begin is None or (self.begin or BEGINNING) <= other.begin
        )


def _denied(claim: Claim, items: Sequence[_Holder]) -> Sequence[_Holder]:
    """The item that a correction denies: the only one, or the only one that it names; else none."""
    if len(items) == 1:
        return items
    quote = f" {key_of(claim.quote)} "
    named = [one for one in items if f" {key_of(str(one.value))} " in quote]
    return named if len(named) == 1 else []


def _order(holder: _Holder) -> tuple[int, datetime]:
    return holder.weight, holder.begin or BEGINNING
