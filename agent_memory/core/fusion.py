"""Merging of all blocks' recalls: near-duplicates, ranks, and selection within a budget. Pure."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cache, lru_cache
from itertools import pairwise
from math import ceil
from types import MappingProxyType
from typing import NamedTuple

from agent_memory.core.records import Recall, Scope, Source
from agent_memory.core.text import WORD, identifiers, names, word_lists

_ALIKE = 0.8
_NEGATES = frozenset(word_lists()["negations"])  # they change a text to which they are added
_MOST_CACHED = 2_000


class _Words(NamedTuple):
    """The hashes of all pairs of neighbouring words in a text. `first` has the smallest hashes.

    If two texts share four of five pairs, their `first` have a hash in common. Source: Xiao et al.,
    "Efficient Similarity Joins for Near Duplicate Detection", WWW 2008.
    """

    pairs: frozenset[int]
    first: list[int]
    every: frozenset[str]  # the words, without punctuation


def doubles(texts: Sequence[str]) -> dict[int, int]:
    """Map the index of each near-duplicate to the index of the first text that it repeats."""
    words = [_words(text) for text in texts]

    @cache
    def named(place: int) -> frozenset[str]:
        text = texts[place]
        return frozenset(name.casefold() for name in (*identifiers(text), *names(text)))

    by_pair: dict[int, list[int]] = defaultdict(list)
    duplicates: dict[int, int] = {}
    for place, own in enumerate(words):
        near = sorted({other for pair in own.first if pair in by_pair for other in by_pair[pair]})
        repeated = (at for at in near if _alike(own, words[at]) and named(at) == named(place))
        if (first := next(repeated, None)) is not None:
            duplicates[place] = first
            continue
        for pair in own.first:
            by_pair[pair].append(place)
    return duplicates


@lru_cache(_MOST_CACHED)  # called for each block, then for the merge
def _words(text: str) -> _Words:
    folded = text.casefold()
    pairs = frozenset(map(hash, pairwise(["", *folded.split()]))) or frozenset([0])
    first = sorted(pairs)[: len(pairs) - ceil(_ALIKE * len(pairs)) + 1]
    return _Words(pairs, first, frozenset(WORD.findall(folded)))


def _alike(words: _Words, other: _Words) -> bool:
    few, many = sorted((len(words.pairs), len(other.pairs)))
    if few < _ALIKE * many:
        return False
    common = len(words.pairs & other.pairs)
    if common < _ALIKE * (few + many - common):
        return False
    more, less = words.every - other.every, other.every - words.every
    return not (more and less) and _NEGATES.isdisjoint(more | less)


_AGREED = 0.25
"""The part of another block's share that a recall gets as a bonus; see `merge`."""
_SPARE = 4  # recalls that `folded` first reads beyond its limit, as some may be near-duplicates
_STANDING = 300
"""Tokens added to the cost of each recall when recalls are compared."""


def merge(
    by_block: Mapping[str, Sequence[Recall]],
    shown: Collection[Source] = (),
    among: Collection[str] | None = None,
    floors: Mapping[str, float] = MappingProxyType({}),
) -> list[Recall]:
    """Merge all blocks' recalls into one list, best first.

    Pinned recalls come first, then the others by rank:

    - The share of a recall is its score divided by the best score of the block's unpinned recalls.
    - The weight is the share plus a bonus. If another block recalls the same message, for example
      as the source of a fact, the bonus is a quarter of that recall's share.
    - The rank is the weight times the best relevance that the recall's block reports, if any.

    With equal ranks, the block that is configured first has priority. A recall is left out if the
    window shows all its sources. Of near-duplicates, only the first stays. Near-duplicates have
    the same names and identifiers, and four of five pairs of words in common. One of them has all
    words of the other: a replaced word may be another value ("is called Lulu").

    Args:
        shown: The messages that the window shows whole.
        among: The blocks to which `shown` applies, because they share the window's store. In
            another store, a session id may belong to another session. None for all blocks.
        floors: For each block, the weight below which unpinned recalls are left out.
    """
    shown = frozenset(shown)
    wanted = [
        recall
        for block, recalls in by_block.items()
        for recall in recalls
        if not recall.sources
        or (among is not None and block not in among)
        or not shown.issuperset(recall.sources)
    ]
    every = (recall for recalls in by_block.values() for recall in recalls)
    ranked = [
        (weight, recall)
        for weight, recall in zip(_weights(wanted, every), wanted, strict=True)
        if recall.pinned or weight >= floors.get(recall.block, -math.inf)
    ]
    likely = {
        block: max((item.relevance for item in recalls if item.relevance is not None), default=1.0)
        for block, recalls in by_block.items()
    }
    ranked.sort(key=lambda pair: (not pair[1].pinned, -pair[0] * likely[pair[1].block]))
    return _folded([recall for _, recall in ranked])


def marked(
    name: str, recalls: Sequence[Recall], outdated: Mapping[str, Mapping[Source, datetime]]
) -> list[Recall]:
    """Mark the recalls of block `name` that other blocks report as outdated, and add the date.

    A recall is outdated if all its sources are. `outdated` maps each reporting block to the
    outdated messages, and each message to the time at which it became outdated.
    """
    since = {
        source: at
        for block, times in outdated.items()
        if block != name
        for source, at in times.items()
    }
    return [_marked(recall, since) for recall in recalls]


def _marked(recall: Recall, since: Mapping[Source, datetime]) -> Recall:
    if not recall.sources or not all(source in since for source in recall.sources):
        return recall
    latest = max(since[source] for source in recall.sources)
    time = f"{recall.display_time}; " if recall.display_time else ""
    return replace(recall, time=f"{time}outdated since {latest:%Y-%m-%d}")


def select(
    recalls: Sequence[Recall], room: int, limits: Mapping[str, int | None] | None = None
) -> list[Recall]:
    """Return the recalls to show in `room` tokens, in the order of `recalls`.

    In a first pass, each block may fill an equal part of the room. In a second pass, all recalls
    compete for the rest. In each pass, pinned recalls are chosen first, then the others by worth.
    The worth is the weight (see `merge`) divided by the square root of (tokens + 300), so longer
    recalls must be more relevant. A block's recalls of equal weight are chosen in order. `limits`
    has the most tokens for the recalls of each block.
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
    worth: list[float] = []
    least: dict[tuple[str, float], float] = {}
    for weight, recall in zip(_weights(recalls, recalls), recalls, strict=True):
        equal = (recall.block, weight)
        own = weight / math.sqrt(_STANDING + recall.tokens)
        least[equal] = min(own, least.get(equal, own))
        worth.append(least[equal])
    return sorted(range(len(recalls)), key=lambda at: (not recalls[at].pinned, -worth[at]))


def _weights(recalls: Sequence[Recall], every: Iterable[Recall]) -> list[float]:
    """Return the weight of each recall; see `merge`. `every` determines the best scores."""
    best: dict[str, float] = {}
    for recall in every:
        if recall.pinned:  # a pinned recall may have any score
            continue
        best[recall.block] = max(best.get(recall.block, 0.0), _finite(recall.score))
    shares = [
        _finite(recall.score) / best[recall.block] if best.get(recall.block) else 0.0
        for recall in recalls
    ]
    of_source: dict[Source, dict[str, float]] = {}
    for share, recall in zip(shares, recalls, strict=True):
        for source in recall.sources:
            by_block = of_source.setdefault(source, {})
            by_block[recall.block] = max(by_block.get(recall.block, 0.0), share)
    return [
        share + _AGREED * max(
            (other for source in recall.sources for block, other in of_source[source].items()
             if block != recall.block),
            default=0.0,
        )
        for share, recall in zip(shares, recalls, strict=True)
    ]  # fmt: skip


def _finite(score: float) -> float:
    return score if math.isfinite(score) else 0.0


def with_pinned(
    recalls: Sequence[Recall], every: Sequence[Recall], scope: Scope, limit: int
) -> list[Recall]:
    """Return up to `limit` recalls: the pinned ones of `every`, then the others of `recalls`."""
    pinned = [replace(recall, pinned=True) for recall in every if recall.id in scope.pinned]
    return [*pinned, *[recall for recall in recalls if recall.id not in scope.pinned]][:limit]


def folded(ranked: Iterable[Recall], limit: int) -> list[Recall]:
    """Return the first `limit` recalls without near-duplicates, without reading all of `ranked`."""
    rest, first, size = iter(ranked), dict[str, Recall](), limit + _SPARE
    while True:
        for recall in rest:
            first.setdefault(recall.text, recall)
            if len(first) >= size:
                break
        unique = _folded(list(first.values()))
        if len(unique) >= limit or len(first) < size:
            return unique[:limit]
        size *= 2


def _folded(ranked: Sequence[Recall]) -> list[Recall]:
    duplicates = doubles([recall.text for recall in ranked])
    return [recall for place, recall in enumerate(ranked) if place not in duplicates]
