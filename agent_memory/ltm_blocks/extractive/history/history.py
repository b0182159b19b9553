"""Derives facts from claims, as they were known at any time, and lists their changes. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import combinations
from typing import Literal, get_args

from agent_memory.core.timestamps import BEGINNING
from agent_memory.ltm_blocks.extractive.history.claims import Claim, Journal, Link
from agent_memory.ltm_blocks.extractive.history.fact import Evidence, Fact, Why
from agent_memory.ltm_blocks.extractive.history.periods import END, Period, without


@dataclass(slots=True)
class _ClaimGroup:
    """The claims of one fact, and the groups of related facts."""

    claims: list[Claim]
    weight: int
    links: tuple[Link, ...]
    enders: list[_ClaimGroup] = field(default_factory=list)  # groups that end this group
    ended: list[_ClaimGroup] = field(default_factory=list)  # groups whose end this group states
    # groups that contradict or refine this group
    contradictors: list[_ClaimGroup] = field(default_factory=list)
    # groups that cannot be true at the same time as this group
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
        """The stated start. If only an end is stated, the start of the group that it ends."""
        if self._begin is None:
            # groups may end each other in a cycle: this value stops the recursion
            self._begin = self.first.begins or BEGINNING
            if self.first.begins is None:
                begun = next((group.begin for group in self.ended if not group.is_void), BEGINNING)
                self._begin = begun if begun < self.end else BEGINNING
        return self._begin

    @property
    def order(self) -> tuple[int, datetime, datetime, int]:
        return self.weight, self.begin, self.first.recorded_at, self.first.seq

    @property
    def is_void(self) -> bool:
        """Whether a valid group contradicts or refines this group."""
        if self._void is None:
            self._void = False  # in a cycle of contradictions, one group stays valid
            self._void = any(not group.is_void for group in self.contradictors)
        return self._void

    @property
    def ending(self) -> list[_ClaimGroup]:
        """The groups that end this group after its begin, but earlier than its stated end."""
        valid = (group for group in self.enders if not group.is_void)
        return [group for group in valid if BEGINNING < self.begin < group.end < self.end]

    @property
    def period(self) -> Period:
        """The stated period, shortened by other groups that end it."""
        return self.begin, min([self.end, *(group.end for group in self.ending)])

    def beats(self, other: _ClaimGroup) -> bool:
        """Return whether this group is true, rather than `other`, where their periods overlap."""
        if self.order != other.order:
            return self.order > other.order
        if self.names(other) != other.names(self):
            return self.names(other)
        return self.first.id > other.first.id

    def names(self, other: _ClaimGroup) -> bool:
        return any(link.fact == other.first.fact for link in self.links)


def facts_of(
    claims: Iterable[Claim],
    *,
    block: str = "",
    weights: Mapping[str, int] | None = None,
    known_at: datetime | None = None,
) -> list[Fact]:
    """Return all facts that claims state, including superseded facts, in order of statement.

    A role of less weight changes no fact of a role of more weight; other roles have the weight 0.
    Claims that were stated after `known_at` are ignored.
    """
    included = [claim for claim in claims if known_at is None or claim.recorded_at <= known_at]
    groups = _grouped(included, weights or {})
    _link(groups)
    return [_fact(group, block) for group in sorted(groups.values(), key=_stated_at)]


def _stated_at(group: _ClaimGroup) -> tuple[datetime, int, int, str]:
    return group.first.recorded_at, group.first.seq, group.first.place, group.first.id


def _grouped(claims: Sequence[Claim], weights: Mapping[str, int]) -> dict[str, _ClaimGroup]:
    claims_of: dict[str, list[Claim]] = defaultdict(list)
    for claim in sorted(claims, key=lambda c: (c.recorded_at, c.seq, c.place, c.id)):
        claims_of[claim.fact].append(claim)
    groups = {}
    for fact, members in claims_of.items():
        weight = max(weights.get(claim.role, 0) for claim in members)
        # weightier roles come first, then earlier claims, then the original before repetitions
        members.sort(key=lambda c: (-weights.get(c.role, 0), c.recorded_at, c.seq, c.id != c.fact))
        # only links of the weightiest role count
        weightiest = (claim for claim in members if weights.get(claim.role, 0) == weight)
        links = dict.fromkeys(link for claim in weightiest for link in claim.links)
        groups[fact] = _ClaimGroup(members, weight, tuple(links))
    return groups


def _link(groups: Mapping[str, _ClaimGroup]) -> None:
    fields: dict[str, list[str]] = defaultdict(list)
    pairs: set[frozenset[str]] = set()
    endings: list[tuple[_ClaimGroup, _ClaimGroup]] = []
    for fact, group in groups.items():
        for link in group.links:
            other = groups.get(link.fact)
            if other is None or other is group:  # the linked fact was forgotten
                continue
            pairs.add(frozenset((fact, link.fact)))
            is_later = _stated_at(other)[:2] <= _stated_at(group)[:2]
            if link.kind == "end":
                endings.append((group, other))
            elif link.kind != "update" and group.weight >= other.weight and is_later:
                other.contradictors.append(group)
        if group.first.alone and group.first.field is not None:
            fields[group.first.field].append(fact)
    for members in fields.values():
        pairs.update(map(frozenset, combinations(members, 2)))
    for first, second in pairs:
        groups[first].rivals.append(groups[second])
        groups[second].rivals.append(groups[first])
    for group, other in endings:
        for version in (other, *other.contradictors):  # the replacements of `other` also ended
            if version is not group and other.weight >= group.weight:
                group.ended.append(version)
            if version is not group and min(group.weight, other.weight) >= version.weight:
                version.enders.append(group)
    # compute the lazy properties in an order that avoids deep recursion
    in_order = sorted(groups.values(), key=_stated_at)
    for group in reversed(in_order):
        group.is_void  # noqa: B018
    for group in in_order:
        group.begin  # noqa: B018


def _fact(group: _ClaimGroup, block: str) -> Fact:
    first = group.first
    winners = [rival for rival in group.rivals if not rival.is_void and rival.beats(group)]
    taken = ((winner.begin, winner.end) for winner in winners)
    periods = [] if group.is_void else without(group.period, taken)
    after, why = _successor(group, winners, periods)
    valid_to = periods[-1][1] if periods else group.end
    # it was true for a day
    if why == "updated" and not periods and not group.is_void and group.begin > BEGINNING:
        valid_to = min(group.end, group.begin + timedelta(days=1))
    if valid_to == group.end:
        valid_to = first.valid_to or END
    return Fact(
        id=first.fact,
        block=block,
        text=first.text,
        subject=first.subject,
        category=first.category,
        confidence=max(claim.confidence for claim in group.claims),
        role=first.role,
        valid_from=first.valid_from if first.begins or group.begin == BEGINNING else group.begin,
        valid_to=None if valid_to == END else valid_to,
        recorded_at=min(claim.recorded_at for claim in group.claims),
        superseded_at=None if after is None else max(first.recorded_at, after.first.recorded_at),
        superseded_by=None if after is None else after.first.fact,
        why=why,
        evidence=tuple(
            Evidence(c.session_id, c.seq, c.quote, c.role, c.model, c.prompt, c.recorded_at)
            for c in sorted(group.claims, key=lambda c: (c.recorded_at, c.seq))
        ),
        periods=tuple(periods),
        field=first.field,
        value=first.value,
        kind=first.kind,
        when=first.when,
        precision=first.precision,
    )


def _successor(
    group: _ClaimGroup, winners: Sequence[_ClaimGroup], periods: Sequence[Period]
) -> tuple[_ClaimGroup | None, Why]:
    """Return the group that replaced a fact, or ended it earlier than stated, with the reason."""
    if group.is_void:
        against = [other for other in group.contradictors if not other.is_void]
        heir = min(against, key=_stated_at)
        kinds = {link.kind for link in heir.links if link.fact == group.first.fact}
        replaced: Why = "updated" if "replace" in kinds else "contradicted"
        return heir, "refined" if "refine" in kinds else replaced
    if periods and periods[-1][1] == group.end:
        return None, ""
    # first choice: groups that end this group, and winners at the group's stated end. Otherwise all
    # winners that end after the group's begin
    last = [other for other in winners if other.begin < group.end <= other.end]
    taken = group.ending + last or [other for other in winners if other.end > group.begin]
    if not taken:
        return None, ""
    heir = min(taken, key=_stated_at)
    if heir in group.ending:
        return heir, "ended"
    return heir, "outranked" if heir.weight > group.weight else "updated"


What = Literal[
    "learned", "said again", "refined", "updated", "ended", "contradicted", "outranked", "refused",
    "forgotten",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Change:
    """One change of a user's facts.

    Attributes:
        at: The time of the message that caused the change. For "refused", the time of the batch's
            last message; for "forgotten", the time of the request (UTC).
        what: "learned": a new fact. "said again": more evidence for a fact. "refined", "updated",
            "ended", "contradicted", "outranked": see `Fact.why`. "refused": findings of a model
            that were not stored. "forgotten": deleted on request.
        why: The reason as a sentence.
        fact: The fact's id; None if the change concerns no fact, or several facts.
        text: The fact's text; empty for "refused" and "forgotten".
        evidence: The message that caused the change, if any.
        first, last: Seqs of the first and last message concerned.
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
    "forgotten": "state facts that must stay forgotten",
    "category": "have a category that is not stored",
    "confidence": "were guesses",
    "chatter": "express only a mood or a courtesy",
    "value": "do not fit the field",
    "echo": "only repeat known facts, and are not from the user",
}


def changes(block: str, facts: Sequence[Fact], journal: Journal) -> list[Change]:
    """Return all changes of facts, oldest first."""
    rows = [change for fact in facts for change in _of_fact(block, fact, facts)]
    for batch in journal.batches:
        for reason, count in batch.refused.items():
            text = f"{count} of {batch.found} findings {_REASONS.get(reason, reason)}"
            place = (batch.session_id, batch.first, batch.last)
            rows.append(Change(batch.at, "refused", text, block, None, "", None, *place))
    for gone in journal.forgotten:
        place = (gone.session_id, gone.first, gone.last)
        why = gone.why or "on request"
        rows.append(Change(gone.at, "forgotten", why, block, gone.fact, "", None, *place))
    return sorted(rows, key=lambda change: (change.at, _ORDER.index(change.what)))


def _of_fact(block: str, fact: Fact, facts: Sequence[Fact]) -> list[Change]:
    rows = []
    for place, item in enumerate(fact.evidence):
        why = f'{item.role} said: "{item.quote}"'
        what: What = "said again" if place else "learned"
        at = (item.session_id, item.seq, item.seq)
        rows.append(Change(item.recorded_at, what, why, block, fact.id, fact.text, item, *at))
    after = next((other for other in facts if other.id == fact.superseded_by), None)
    if after is not None and fact.superseded_at is not None and fact.why:
        item = after.evidence[0]
        why = f"{_WHY[fact.why]}: {after.text}"
        at = (item.session_id, item.seq, item.seq)
        rows.append(Change(fact.superseded_at, fact.why, why, block, fact.id, fact.text, item, *at))
    return rows


_WHY = {
    "refined": "another fact includes this fact",
    "updated": "another fact took its place",
    "ended": "a message states that it ended",
    "contradicted": "a message states that it was never true",
    "outranked": "a statement of a weightier role takes precedence",
}
