"""What becomes of drafts: which say again what is known, and which supersede what."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from agent_memory.ltm_blocks.extractive.forms import MANY_VALUED
from agent_memory.ltm_blocks.extractive.history.claims import Claim, Link, LinkKind, Relation, since
from agent_memory.ltm_blocks.extractive.history.drafting import Draft
from agent_memory.ltm_blocks.extractive.history.fact import Fact, listed
from agent_memory.ltm_blocks.extractive.history.likeness import ALIKE, candidates, cosines, key_of
from agent_memory.ltm_blocks.extractive.history.linking import links_again, links_for
from agent_memory.ltm_blocks.extractive.history.periods import day_of
from agent_memory.ltm_blocks.extractive.reconciling import Answer, Group

_EACH = 3  # older facts to compare a new one with
_SEEN_ALIKE = 0.85
"""How near a new fact must come to one that the model had before it, to ask about both again."""
_TOLD_ALIKE = 0.6
"""How near it must come to one of the same answer."""


@dataclass(frozen=True, slots=True)
class Known:
    """What is known already.

    Attributes:
        facts: All facts but those that were never so, oldest first.
        current: Ids of those that are current.
        claims: What they follow from.
        vectors: (facts, dimension) what each means.
        seen: Ids of those that the model had before it when it found the new ones.
    """

    facts: Sequence[Fact]
    current: Collection[str]
    claims: Sequence[Claim]
    vectors: np.ndarray
    seen: Collection[str] = ()


Ask = Callable[[Sequence[Group]], Mapping[int, Answer]]


def settle(
    drafts: Sequence[Draft],
    vectors: np.ndarray,
    known: Known,
    weights: Mapping[str, int],
    ask: Ask,
) -> tuple[list[Claim], int]:
    """The claims of drafts, tied to what is known; and how many only echo a weightier role.

    What says the same in the same words is known by its words. Of what the model had before it, it
    has said already what a new one does to it. It is asked about the others where they come near to
    something, in one call.

    Args:
        drafts: In the order in which they were said.
        vectors: (drafts, dimension) what each means.
        known: What is known.
        weights: What each role's word weighs.
        ask: Asks a model.
    """
    again, fresh = _split(drafts, known)
    answers = _answers([drafts[at] for at in fresh], vectors[fresh], known, ask)
    of_known = {fact.id: fact for fact in known.facts}
    settled: list[Claim] = []
    fact_at = [fact.id for fact in known.facts]  # by place in known.facts, then of the fresh
    weight_of = {fact.id: weights.get(fact.role, 0) for fact in known.facts}
    dropped: Counter[str] = Counter()

    def keep(claim: Claim) -> None:
        weight = weights.get(claim.role, 0)
        if claim.fact != claim.id and weight < weight_of[claim.fact]:
            dropped["echo"] += 1
            return
        weight_of[claim.fact] = max(weight, weight_of.get(claim.fact, 0))
        settled.append(claim)

    def heard(role: str) -> list[Claim]:
        weight = weights.get(role, 0)
        return [
            one if weights.get(one.role, 0) >= weight else replace(one, links=_loosened(one.links))
            for one in (*known.claims, *settled)
        ]

    for order, at in enumerate(fresh):
        draft = drafts[at]
        claim = draft.claim
        if order in answers:
            relation, places = answers[order]
            targets = [(fact_at[at], of_known.get(fact_at[at])) for at in places]
            claim = _tied(claim, relation, targets, heard(claim.role))
        fact_at.append(claim.fact)
        keep(claim)
    for at, fact in again.items():
        claim = drafts[at].claim
        keep(_again(claim, fact_at[fact], heard(claim.role)))
    return sorted(settled, key=lambda claim: claim.seq), dropped["echo"]


def _split(drafts: Sequence[Draft], known: Known) -> tuple[dict[int, int], list[int]]:
    """Drafts that say again, word by word, what is current or was said before them; and the others.

    Of the first, which they say again: the place in the list of known facts and fresh drafts.
    """
    seen: dict[tuple[str, str], list[int]] = defaultdict(list)
    for place, fact in enumerate(known.facts):
        if fact.id in known.current:
            seen[fact.subject.casefold(), key_of(fact.text)].append(place)
    again: dict[int, int] = {}
    fresh: list[int] = []
    kinds: set[tuple[str, str]] = set()
    earlier: list[Fact | Claim] = [*known.facts]
    for at, draft in enumerate(drafts):
        claim = draft.claim
        kind = (claim.subject.casefold(), claim.category)
        same = seen[kind[0], key_of(claim.text)]
        place = next(
            (place for place in same if _adds_none(claim, earlier[place], kind in kinds)), -1
        )
        if place >= 0:
            again[at] = place
        else:
            same.append(len(earlier))
            earlier.append(claim)
            fresh.append(at)
            kinds.add(kind)
    return again, fresh


def _adds_none(claim: Claim, earlier: Fact | Claim, news: bool) -> bool:
    """Whether a claim in the same words says nothing of another time.

    Without a date it is what still holds, where no news of its kind stands between.
    """
    before = since(earlier.valid_from, earlier.valid_to, earlier.recorded_at)
    if (claim.begins, claim.valid_to) == (before, earlier.valid_to):
        return True
    undated = claim.valid_from is claim.valid_to is None
    today = day_of(claim.recorded_at)
    return undated and not news and isinstance(earlier, Fact) and earlier.holds(today)


def _answers(
    fresh: Sequence[Draft], vectors: np.ndarray, known: Known, ask: Ask
) -> dict[int, tuple[Relation, list[int]]]:
    """What new ones have to do with older ones: for each that has, by its place, what it is, and
    the places of the older ones among the known facts and the new ones."""
    place_of = {fact.id: at for at, fact in enumerate(known.facts)}
    told: dict[int, tuple[Relation, list[int]]] = {}
    for at, draft in enumerate(fresh):
        places = [place_of[name] for name in draft.known if name in place_of]
        if draft.relation and places:
            told[at] = draft.relation, places
    first = len(known.facts)
    lines = [*map(listed, known.facts), *(listed(draft.claim) for draft in fresh)]
    near = _near(fresh, vectors, known)
    groups = [
        Group(first + at + 1, lines[first + at], {one + 1: lines[one] for one in near[at]})
        for at in range(len(fresh))
        if near[at] and at not in told
    ]
    asked = ask(groups) if groups else {}
    for number, answer in asked.items():
        assert answer.answer != "add", "such an answer ties nothing, and is left out"
        told[number - first - 1] = answer.answer, [one - 1 for one in answer.which]
    return told


def _near(fresh: Sequence[Draft], vectors: np.ndarray, known: Known) -> list[list[int]]:
    """For each new one, the places of older ones that the model is to compare it with."""
    new = [draft.claim for draft in fresh]
    texts = [*(fact.text for fact in known.facts), *(claim.text for claim in new)]
    # of what is superseded only what comes near: its kind alone would bring all that ever was
    kinds = [
        (fact.subject.casefold(), fact.category) if fact.id in known.current else ("", "")
        for fact in known.facts
    ]
    # of what is told in one breath, what may have many values at a time is no news of each other
    kinds += [
        ("", "") if claim.category in MANY_VALUED else (claim.subject.casefold(), claim.category)
        for claim in new
    ]
    seen = frozenset(at for at, fact in enumerate(known.facts) if fact.id in known.seen)
    # what it has judged already, and what it told in the same answer, only where it is very near
    least = [_SEEN_ALIKE if at in seen else ALIKE for at in range(len(known.facts))]
    least += [_TOLD_ALIKE for _ in new]
    cosine = cosines(vectors, np.concatenate([known.vectors, vectors]))
    found = []
    for at, claim in enumerate(new):
        upto = len(known.facts) + at
        own = (claim.subject.casefold(), claim.category)
        some = candidates(claim.text, own, texts[:upto], kinds[:upto], cosine[at, :upto])
        near = [
            one
            for one, alike in some
            if alike >= least[one] or (own == kinds[one] and one not in seen)
        ]
        found.append(near[:_EACH])
    return found


def _tied(
    claim: Claim,
    relation: Relation,
    targets: Sequence[tuple[str, Fact | None]],
    claims: Sequence[Claim],
) -> Claim:
    """A claim, tied to the facts that the model named."""
    if relation == "same":
        return _again(claim, targets[0][0], claims)
    named: list[tuple[LinkKind, str]] = [(_link(relation, fact), name) for name, fact in targets]
    links = links_for(named, claims, denies=relation == "deny")
    # absorbed anew, others name it already
    tied = replace(claim, links=tuple(one for one in links if one.fact != claim.id))
    if tied.valid_from is tied.valid_to is None:
        tied = _dated_as(tied, [fact for _, fact in targets if fact is not None], named)
    if claim.kind == "event" and any(kind == "update" for kind, _ in named):
        return replace(tied, kind="state", valid_to=None)  # "moved to Lisbon": lives there since
    return tied


def _dated_as(claim: Claim, older: Sequence[Fact], named: Sequence[tuple[LinkKind, str]]) -> Claim:
    """A claim that was told without a time, with that of what it refines: it stands for both.

    A plan's time is when it was to happen.
    """
    refined = {name for kind, name in named if kind == "refine"}
    for fact in older:
        dated = fact.valid_from is not None or fact.valid_to is not None
        if fact.id in refined and dated and fact.kind == claim.kind:
            return replace(claim, valid_from=fact.valid_from, valid_to=fact.valid_to, when="")
    return claim


def _link(relation: Relation, older: Fact | None) -> LinkKind:
    """An event or a plan has no other value later: what is told of it anew stands for it."""
    happens = older is not None and older.kind in ("event", "plan")
    if relation == "deny":
        return "contradict"
    if happens and relation in ("update", "end"):
        return "refine"
    assert relation != "same"
    return relation


def _again(claim: Claim, fact: str, claims: Sequence[Claim]) -> Claim:
    return replace(claim, fact=fact, links=links_again(fact, claims))


def _loosened(links: Sequence[Link]) -> tuple[Link, ...]:
    """The links of who has less weight: they tie, and change nothing."""
    return tuple(Link("update", link.fact) for link in links)
