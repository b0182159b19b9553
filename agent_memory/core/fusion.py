"""Merging what several blocks recall, and choosing what a token budget can hold. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from itertools import pairwise
from types import MappingProxyType

from agent_memory.core.records import Recall, Source
from agent_memory.core.text import identifiers, names

_ALIKE = 0.8
_AGREED = 0.25
"""What another block's finding of the same message adds to a recall, of what it scores there."""
_STANDING = 300
"""Tokens that every recall is taken to cost beside its own, when their worth is compared."""


def merge(
    found: Mapping[str, Sequence[Recall]],
    shown: Collection[Source] = (),
    among: Collection[str] | None = None,
    floors: Mapping[str, float] = MappingProxyType({}),
) -> list[Recall]:
    """All blocks' recalls in one list, best first.

    A recall ranks by its score over the best score of its block, and by what another block makes of
    the message that it tells of: a fact and the words it was found in speak for each other. Ties go
    to the block named first.
    Left out are recalls whose every source the window still shows. Of texts that say the same (four
    of five pairs of words alike, and all names and numbers) the best stays.

    Args:
        found: For each block, its recalls, best first.
        shown: Sources that the window shows.
        among: The blocks whose sources are of the window's own store; None for all of them. In
            another store a session of the same id is another session.
        floors: For each block, the share of its best score below which its recalls are left out.
    """
    wanted = [
        recall
        for block, recalls in found.items()
        for recall in recalls
        if not recall.sources
        or (among is not None and block not in among)
        or any(source not in shown for source in recall.sources)
    ]
    every = (recall for recalls in found.values() for recall in recalls)
    ranked = [
        (weight, recall)
        for weight, recall in zip(_weights(wanted, every), wanted, strict=True)
        if weight >= floors.get(recall.block, -math.inf)
    ]
    ranked.sort(key=lambda pair: -pair[0])
    return _folded([recall for _, recall in ranked])


def select(
    recalls: Sequence[Recall], room: int, limits: Mapping[str, int | None] | None = None
) -> list[Recall]:
    """The recalls that fit into `room` tokens, best first.

    Each block is sure of an equal share for its best; what is left goes to the best of all. Best is
    what is worth most for its tokens: what it ranks by, over the square root of what it costs. So
    long recalls have to bear on the question more than short ones, but a short one that says little
    drives nothing out.

    Args:
        recalls: Merged recalls with their `tokens`.
        room: Tokens they may take together.
        limits: For each block, the tokens it may take at most.
    """
    limits = limits or {}
    blocks = {recall.block for recall in recalls}
    share = room // max(1, len(blocks))
    spent = dict.fromkeys(blocks, 0)
    chosen: set[int] = set()
    order = _by_worth(recalls)
    for bound in (share, room):
        for place in order:
            recall = recalls[place]
            own = limits.get(recall.block)
            limit = bound if own is None else min(bound, own)
            fits = spent[recall.block] + recall.tokens <= limit
            if place not in chosen and fits and sum(spent.values()) + recall.tokens <= room:
                chosen.add(place)
                spent[recall.block] += recall.tokens
    return [recall for place, recall in enumerate(recalls) if place in chosen]


def _by_worth(recalls: Sequence[Recall]) -> list[int]:
    """Their places, those first that are worth most for their tokens."""
    weights = _weights(recalls, recalls)
    worth = [
        weight / math.sqrt(_STANDING + recall.tokens)
        for weight, recall in zip(weights, recalls, strict=True)
    ]
    return sorted(range(len(recalls)), key=lambda place: -worth[place])


def _weights(recalls: Sequence[Recall], every: Iterable[Recall]) -> list[float]:
    """Each one's share of its block's best score, with what other blocks make of its messages.

    Args:
        recalls: Of all blocks.
        every: Those among which the best score of each block is looked for.
    """
    best: dict[str, float] = {}
    for one in every:
        best[one.block] = max(best.get(one.block, 0.0), _finite(one.score))
    shares = [_finite(one.score) / best[one.block] if best[one.block] else 0.0 for one in recalls]
    of_source: dict[Source, dict[str, float]] = {}
    for share, one in zip(shares, recalls, strict=True):
        for source in one.sources:
            told = of_source.setdefault(source, {})
            told[one.block] = max(told.get(one.block, 0.0), share)
    return [
        share + _AGREED * max(
            (other for source in one.sources for block, other in of_source[source].items()
             if block != one.block),
            default=0.0,
        )
        for share, one in zip(shares, recalls, strict=True)
    ]  # fmt: skip


def _finite(score: float) -> float:
    return score if math.isfinite(score) else 0.0


def folded(ranked: Sequence[Recall], limit: int) -> list[Recall]:
    """The first that say something of their own, at most so many.

    Args:
        ranked: Recalls, best first.
        limit: How many.
    """
    first: dict[str, Recall] = {}
    for recall in ranked:
        first.setdefault(" ".join(recall.text.casefold().split()), recall)
    said, size = list(first.values()), 2 * limit
    while len(kept := _folded(said[:size])) < limit and size < len(said):
        size *= 2
    return kept[:limit]


def _folded(ranked: Sequence[Recall]) -> list[Recall]:
    """Those that say nothing that one before them says."""
    pairs = [_pairs(recall.text) for recall in ranked]
    named = cache(lambda place: _named(ranked[place].text))
    gone: set[int] = set()
    by_size = sorted(range(len(ranked)), key=lambda place: len(pairs[place]))
    for at, place in enumerate(by_size):
        some = pairs[place]
        for other in by_size[at + 1 :]:
            more = pairs[other]
            if len(some) < _ALIKE * len(more):
                break
            if (some and some.isdisjoint(more)) or place in gone or other in gone:
                continue
            if _alike(some, more) and named(place) == named(other):
                gone.add(max(place, other))
    return [recall for place, recall in enumerate(ranked) if place not in gone]


def _pairs(text: str) -> frozenset[tuple[str, ...]]:
    """Each two words that follow each other: who did what to whom is in their order."""
    return frozenset(pairwise(["", *text.casefold().split()]))


def _alike(one: frozenset[tuple[str, ...]], other: frozenset[tuple[str, ...]]) -> bool:
    common = len(one & other)
    return common >= _ALIKE * (len(one) + len(other) - common)


def _named(text: str) -> frozenset[str]:
    return frozenset(name.casefold() for name in (*identifiers(text), *names(text)))
