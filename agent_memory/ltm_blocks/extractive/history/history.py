"""What held when, and what was known of it when: follows from the claims alone. Pure.

The model is bitemporal (Snodgrass, "Developing Time-Oriented Database Applications in SQL", 2000):
each claim has the time in which it is said to hold and the time at which it was said, and none is
ever changed. Of two facts that are values of the same thing, one holds at a time: what a weightier
role says, then what began later, then what was said later. So late news falls into its place, what
is over after a while gives back what it stood in for, and a claim that is taken away gives back
what it had superseded.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from agent_memory.ltm_blocks.extractive.history.claims import Claim, Link
from agent_memory.ltm_blocks.extractive.history.fact import Evidence, Fact, Why
from agent_memory.ltm_blocks.extractive.history.periods import BEGINNING, END, Period, without


@dataclass(slots=True)
class _ClaimGroup:
    """The claims of one fact, before other facts are looked at."""

    claims: list[Claim]
    weight: int
    links: tuple[Link, ...]
    enders: list[_ClaimGroup] = field(default_factory=list)
    ended: list[_ClaimGroup] = field(default_factory=list)
    contradictors: list[_ClaimGroup] = field(default_factory=list)
    rivals: list[_ClaimGroup] = field(default_factory=list)
    _void: bool | None = None
    _begin: datetime | None = None

    @property
    def first(self) -> Claim:
        return self.claims[0]

    @property
    def end(self) -> datetime:
        return self.first.ends or END

    @property
    def begin(self) -> datetime:
        """Since when it is said to hold; what only has an end began when what it ends began."""
        if self._begin is None:
            self._begin = self.first.begins or BEGINNING  # for who ends each other in a circle
            if self.first.begins is None:
                begun = next((one.begin for one in self.ended if not one.is_void), BEGINNING)
                self._begin = begun if begun < self.end else BEGINNING
        return self._begin

    @property
    def order(self) -> tuple[int, datetime, datetime, int]:
        return self.weight, self.begin, self.first.recorded_at, self.first.seq

    @property
    def is_void(self) -> bool:
        """Whether what says that it was never so is itself so."""
        if self._void is None:
            self._void = False  # of those who contradict each other in a circle, one stands
            self._void = any(not one.is_void for one in self.contradictors)
        return self._void

    @property
    def stated_period(self) -> Period:
        """The time in which it is said to hold."""
        return self.begin, self.end

    @property
    def ending(self) -> list[_ClaimGroup]:
        """What says that it ended, sooner than was told; what began later is not what ended."""
        return [
            one
            for one in self.enders
            if not one.is_void and BEGINNING < self.begin < one.end < self.end
        ]

    @property
    def period(self) -> Period:
        """The time in which it is said to hold, up to where others say that it ended."""
        return self.begin, min([self.end, *(one.end for one in self.ending)])

    def beats(self, other: _ClaimGroup) -> bool:
        """Whether it is the one that holds where both would."""
        if self.order != other.order:
            return self.order > other.order
        if self.names(other) != other.names(self):
            return self.names(other)
        return self.first.id > other.first.id

    def names(self, other: _ClaimGroup) -> bool:
        """Whether it says something of the other."""
        return any(link.fact == other.first.fact for link in self.links)


def facts_of(
    claims: Iterable[Claim],
    *,
    block: str = "",
    weights: Mapping[str, int] | None = None,
    known_at: datetime | None = None,
) -> list[Fact]:
    """The facts that claims add up to, superseded ones too, by the time at which they were said.

    Args:
        claims: All of one owner and block.
        block: The block's name.
        weights: What each role's word weighs; one that is not named weighs 0. A claim changes none
            that weighs more.
        known_at: Only what was said by then; None for all.
    """
    known = [one for one in claims if known_at is None or one.recorded_at <= known_at]
    groups = _grouped(known, weights or {})
    _link(groups)
    return [_fact(one, block) for one in sorted(groups.values(), key=_said)]


def _said(group: _ClaimGroup) -> tuple[datetime, int, int, str]:
    return group.first.recorded_at, group.first.seq, group.first.place, group.first.id


def _grouped(claims: Sequence[Claim], weights: Mapping[str, int]) -> dict[str, _ClaimGroup]:
    claims_of: dict[str, list[Claim]] = defaultdict(list)
    for claim in sorted(claims, key=lambda c: (c.recorded_at, c.seq, c.place, c.id)):
        claims_of[claim.fact].append(claim)
    groups = {}
    for fact, members in claims_of.items():
        weight = max(weights.get(claim.role, 0) for claim in members)
        # what a weightier role says comes first, and whoever said it first before who agreed
        members.sort(key=lambda c: (-weights.get(c.role, 0), c.recorded_at, c.seq, c.id != c.fact))
        # what a lesser role said of others counts only as far as who agreed said it too
        links = dict.fromkeys(
            link
            for claim in members
            if weights.get(claim.role, 0) == weight
            for link in claim.links
        )
        groups[fact] = _ClaimGroup(members, weight, tuple(links))
    return groups


def _link(groups: Mapping[str, _ClaimGroup]) -> None:
    fields: dict[str, list[_ClaimGroup]] = defaultdict(list)
    pairs: set[tuple[str, str]] = set()
    endings: list[tuple[_ClaimGroup, _ClaimGroup]] = []
    for fact, one in groups.items():
        for link in one.links:
            other = groups.get(link.fact)
            if other is None or other is one:  # it was forgotten
                continue
            pairs.add((min(fact, link.fact), max(fact, link.fact)))
            if link.kind == "end":
                endings.append((one, other))
            elif link.kind in ("contradict", "refine") and _may_contradict(one, other):
                other.contradictors.append(one)
        if one.first.alone and one.first.field is not None:
            fields[one.first.field].append(one)
    for one_id, other_id in pairs:
        groups[one_id].rivals.append(groups[other_id])
        groups[other_id].rivals.append(groups[one_id])
    for members in fields.values():
        for one in members:
            one.rivals += [other for other in members if other is not one]
    for one, other in endings:
        for version in (other, *other.contradictors):  # what stands in its place ended too
            if version is not one:
                one.ended.append(version)
                if one.weight >= version.weight:
                    version.enders.append(one)
    _judge(sorted(groups.values(), key=_said))


def _may_contradict(one: _ClaimGroup, other: _ClaimGroup) -> bool:
    return one.weight >= other.weight and _said(other)[:2] <= _said(one)[:2]


def _judge(groups: Sequence[_ClaimGroup]) -> None:
    """Look at each in the order in which none has to wait for a long chain of others."""
    for one in reversed(groups):
        one.is_void  # noqa: B018
    for one in groups:
        one.begin  # noqa: B018


def _fact(one: _ClaimGroup, block: str) -> Fact:
    first = one.first
    winners = [rival for rival in one.rivals if not rival.is_void and rival.beats(one)]
    periods = [] if one.is_void else without(one.period, (rival.stated_period for rival in winners))
    after, why = _successor(one, winners, periods)
    valid_to = periods[-1][1] if periods else one.stated_period[1]
    if valid_to == one.end:
        valid_to = first.valid_to or END
    return Fact(
        id=first.fact,
        block=block,
        text=first.text,
        subject=first.subject,
        category=first.category,
        confidence=max(claim.confidence for claim in one.claims),
        role=first.role,
        valid_from=first.valid_from if first.begins or one.begin == BEGINNING else one.begin,
        valid_to=None if valid_to == END else valid_to,
        recorded_at=min(claim.recorded_at for claim in one.claims),
        superseded_at=None if after is None else max(first.recorded_at, after.first.recorded_at),
        superseded_by=None if after is None else after.first.fact,
        why=why,
        evidence=tuple(
            Evidence(c.session_id, c.seq, c.quote, c.role, c.model, c.prompt, c.recorded_at)
            for c in sorted(one.claims, key=lambda c: (c.recorded_at, c.seq))
        ),
        periods=tuple(periods),
        field=first.field,
        value=first.value,
        kind=first.kind,
        when=first.when,
    )


def _successor(
    one: _ClaimGroup, winners: Sequence[_ClaimGroup], periods: Sequence[Period]
) -> tuple[_ClaimGroup | None, Why]:
    """What took a fact's place, where its end is not the one that was told."""
    if one.is_void:
        against = [other for other in one.contradictors if not other.is_void]
        heir = min(against, key=_said)
        refines = any(link.fact == one.first.fact and link.kind == "refine" for link in heir.links)
        return heir, "refined" if refines else "contradicted"
    begin, end = one.stated_period
    if periods and periods[-1][1] == end:
        return None, ""
    # who has what would have been its end; where many have it together, all of them
    last = [other for other in winners if other.stated_period[0] < end <= other.stated_period[1]]
    taken = one.ending + last or [other for other in winners if other.stated_period[1] > begin]
    if not taken:
        return None, ""
    heir = min(taken, key=_said)
    if heir in one.ending:
        return heir, "ended"
    return heir, "outranked" if heir.weight > one.weight else "updated"
