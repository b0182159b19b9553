"""What becomes of drafts: which say again what is known, and which supersede what."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from agent_memory.ltm_blocks.extractive.history.claims import Claim, Link, LinkKind
from agent_memory.ltm_blocks.extractive.history.drafting import Draft
from agent_memory.ltm_blocks.extractive.history.fact import Fact
from agent_memory.ltm_blocks.extractive.history.likeness import candidates, cosines, key_of
from agent_memory.ltm_blocks.extractive.history.linking import links_again, links_for
from agent_memory.ltm_blocks.extractive.history.periods import day_of
from agent_memory.ltm_blocks.extractive.reconciling import Answer, Line

_MOST_LISTED = 100


@dataclass(frozen=True, slots=True)
class Known:
    """What is known already.

    Attributes:
        facts: All facts but those that were never so, oldest first.
        current: Ids of those that are current.
        claims: What they follow from.
        vectors: (facts, dimension) what each means.
    """

    facts: Sequence[Fact]
    current: Collection[str]
    claims: Sequence[Claim]
    vectors: np.ndarray


Ask = Callable[[Sequence[Line]], Mapping[int, Answer]]


def settle(
    drafts: Sequence[Draft],
    vectors: np.ndarray,
    known: Known,
    weights: Mapping[str, int],
    ask: Ask,
) -> tuple[list[Claim], int]:
    """The claims of drafts, tied to what is known; and how many only echo a weightier role.

    What says the same in the same words is known by its words. A model is asked about the others
    where they come near to something, in one call.

    Args:
        drafts: In the order in which they were said.
        vectors: (drafts, dimension) what each means.
        known: What is known.
        weights: What each role's word weighs.
        ask: Asks a model.
    """
    again, fresh = _split(drafts, known)
    lines, places = _listed([drafts[at] for at in fresh], vectors[fresh], known)
    answers = ask(lines) if lines else {}
    listed = {at: place for place, at in places.items()}
    number = len(known.facts)
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
        answer = answers.get(listed.get(number + order, -1))
        claim = draft.claim
        if answer is not None:
            targets = [fact_at[places[place]] for place in answer.which]
            claim = _tied(draft, answer, targets, heard(claim.role))
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
    if (claim.valid_from, claim.valid_to) == (earlier.valid_from, earlier.valid_to):
        return True
    today = day_of(claim.recorded_at)
    undated = (claim.valid_from, claim.valid_to) == (today, None)
    return undated and not news and isinstance(earlier, Fact) and earlier.holds(today)


def _listed(
    fresh: Sequence[Draft], vectors: np.ndarray, known: Known
) -> tuple[list[Line], dict[int, int]]:
    """The list to ask about: known facts that may be concerned, then the new ones that come near to
    them or to each other. For each line, its place among the known facts and the fresh drafts."""
    new = [draft.claim for draft in fresh]
    texts = [*(fact.text for fact in known.facts), *(claim.text for claim in new)]
    kinds = [
        *((fact.subject.casefold(), fact.category) for fact in known.facts),
        *((claim.subject.casefold(), claim.category) for claim in new),
    ]
    since = len(known.facts)
    cosine = cosines(vectors, np.concatenate([known.vectors, vectors]))
    # of what is superseded only what comes near: its kind alone would bring all that ever was
    of_kind = [
        kind if at >= since or known.facts[at].id in known.current else ("", "")
        for at, kind in enumerate(kinds)
    ]
    near: dict[int, list[int]] = {}
    for at, claim in enumerate(new):
        upto = since + at
        found = candidates(
            [claim.text], [kinds[upto]], texts[:upto], of_kind[:upto], cosine[at : at + 1, :upto]
        )
        if found[0]:
            near[upto] = found[0]
    wanted = Counter(other for others in near.values() for other in others)
    best = [at for at, _ in wanted.most_common(_MOST_LISTED)]
    order = sorted({*best, *near})
    lines = [_line(at, known, new) for at in order]
    return (lines, dict(enumerate(order))) if near else ([], {})


def _line(at: int, known: Known, new: Sequence[Claim]) -> Line:
    if at < len(known.facts):
        fact = known.facts[at]
        return Line(fact.text, fact.subject, fact.valid_from, fact.valid_to, is_new=False)
    claim = new[at - len(known.facts)]
    return Line(claim.text, claim.subject, claim.valid_from, claim.valid_to, is_new=True)


def _tied(draft: Draft, answer: Answer, targets: Sequence[str], claims: Sequence[Claim]) -> Claim:
    """The claim of a draft, tied to the facts that the model named."""
    if answer.answer == "same":
        return _again(draft.claim, targets[0], claims)
    assert answer.answer != "add", "such an answer ties nothing, and is left out"
    kind: LinkKind = answer.answer
    links = links_for([(kind, one) for one in targets], claims, denies=answer.denies)
    # absorbed anew, others name it already
    return replace(draft.claim, links=tuple(one for one in links if one.fact != draft.claim.id))


def _again(claim: Claim, fact: str, claims: Sequence[Claim]) -> Claim:
    return replace(claim, fact=fact, links=links_again(fact, claims))


def _loosened(links: Sequence[Link]) -> tuple[Link, ...]:
    """The links of who has less weight: they tie, and change nothing."""
    return tuple(Link("update", link.fact) for link in links)
