"""Merging what several blocks recall, and choosing what a token budget can hold. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from types import MappingProxyType

from agent_memory.core.doubles import doubles
from agent_memory.core.records import Recall, Scope, Source

_AGREED = 0.25
"""What another block's finding of the same message adds to a recall, of what it scores there."""
_SPARE = 4  # recalls that may say what others say, beyond those that are wanted
_STANDING = 300
"""Tokens that every recall is taken to cost beside its own, when their worth is compared."""


def merge(
    found: Mapping[str, Sequence[Recall]],
    shown: Collection[Source] = (),
    among: Collection[str] | None = None,
    floors: Mapping[str, float] = MappingProxyType({}),
) -> list[Recall]:
    """All blocks' recalls in one list, best first.

    What is pinned comes first. Else a recall ranks by its score over the best score of its block,
    times the best relevance there, where the block tells one, and by what another block makes of
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
    shown = frozenset(shown)
    wanted = [
        recall
        for block, recalls in found.items()
        for recall in recalls
        if not recall.sources
        or (among is not None and block not in among)
        or not shown.issuperset(recall.sources)
    ]
    every = (recall for recalls in found.values() for recall in recalls)
    ranked = [
        (weight, recall)
        for weight, recall in zip(_weights(wanted, every), wanted, strict=True)
        if recall.pinned or weight >= floors.get(recall.block, -math.inf)
    ]
    likely = {
        block: max((one.relevance for one in recalls if one.relevance is not None), default=1.0)
        for block, recalls in found.items()
    }
    ranked.sort(key=lambda pair: (not pair[1].pinned, -pair[0] * likely[pair[1].block]))
    return _folded([recall for _, recall in ranked])


def marked(
    name: str, recalls: Sequence[Recall], outdated: Mapping[str, Mapping[Source, datetime]]
) -> list[Recall]:
    """A block's recalls; those that another block knows to be outdated say since when. Pure.

    Args:
        name: The block that recalls.
        recalls: What it recalls.
        outdated: By the block that knows it, the messages of which nothing holds still.
    """
    since = {
        source: at
        for block, some in outdated.items()
        if block != name
        for source, at in some.items()
    }
    if not since:
        return list(recalls)
    return [_marked(one, since) for one in recalls]


def _marked(recall: Recall, since: Mapping[Source, datetime]) -> Recall:
    if not recall.sources or not all(source in since for source in recall.sources):
        return recall
    news = max(since[source] for source in recall.sources)
    said = f"{recall.told_time}; " if recall.told_time else ""
    return replace(recall, time=f"{said}outdated since {news:%Y-%m-%d}")


def select(
    recalls: Sequence[Recall], room: int, limits: Mapping[str, int | None] | None = None
) -> list[Recall]:
    """The recalls that fit into `room` tokens, best first.

    Each block is sure of an equal share for its best; what is left goes to the best of all. Best is
    what is worth most for its tokens: what it ranks by, over the square root of what it costs. So
    long recalls have to bear on the question more than short ones, but a short one that says little
    drives nothing out. What is pinned comes first in any case.

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
    return sorted(range(len(recalls)), key=lambda at: (not recalls[at].pinned, -worth[at]))


def _weights(recalls: Sequence[Recall], every: Iterable[Recall]) -> list[float]:
    """Each one's share of its block's best score, with what other blocks make of its messages.

    Args:
        recalls: Of all blocks.
        every: Those among which the best score of each block is looked for.
    """
    best: dict[str, float] = {}
    for one in every:
        if one.pinned:  # its score may be beyond all others
            continue
        best[one.block] = max(best.get(one.block, 0.0), _finite(one.score))
    shares = [
        _finite(one.score) / best[one.block] if best.get(one.block) else 0.0 for one in recalls
    ]
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


def with_pinned(
    found: Sequence[Recall], every: Sequence[Recall], scope: Scope, limit: int
) -> list[Recall]:
    """What a block recalls, with what is pinned before it.

    Args:
        found: What it found, best first.
        every: What it could recall.
        scope: As `get` was given it.
        limit: At most so many.
    """
    pinned = [one for one in every if one.id in scope.pinned]
    return [*pinned, *[one for one in found if one.id not in scope.pinned]][:limit]


def folded(ranked: Iterable[Recall], limit: int) -> list[Recall]:
    """The first that say something of their own, at most so many.

    Args:
        ranked: Recalls, best first; no more of them are asked for than it takes.
        limit: How many.
    """
    rest, first, size = iter(ranked), dict[str, Recall](), limit + _SPARE
    while True:
        for recall in rest:
            first.setdefault(" ".join(recall.text.casefold().split()), recall)
            if len(first) >= size:
                break
        kept = _folded(list(first.values()))
        if len(kept) >= limit or len(first) < size:
            return kept[:limit]
        size *= 2


def _folded(ranked: Sequence[Recall]) -> list[Recall]:
    """Those that say nothing that one before them says."""
    gone = doubles([recall.text for recall in ranked])
    return [recall for place, recall in enumerate(ranked) if place not in gone]
