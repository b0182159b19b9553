"""Which of many texts say what another one says. Pure.

Two say the same where four of five pairs of neighbouring words are alike (Jaccard), and all names
and numbers. Every such pair is found, and few others are looked at: by the prefix filter of
Chaudhuri, Ganti and Kaushik, 2006, two that have so much in common share one of their rarest pairs.
And a text of which more than a fifth stands in no other is like none of them: most texts are such.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import cache, lru_cache, partial
from itertools import chain, pairwise
from math import ceil

from agent_memory.core.text import identifiers, names

_ALIKE = 0.8
_MOST_KNOWN = 500

_Pairs = frozenset[str]
_NO_PAIRS: _Pairs = frozenset([""])


def doubles(texts: Sequence[str]) -> dict[int, int]:
    """By the place of each text that says what one before it says, the place of that one.

    Args:
        texts: The texts; of several that say the same the first stays.
    """
    pairs = [_pairs(text) for text in texts]
    named = cache(partial(_named, texts))
    holding = _shared(pairs)
    by_pair: dict[str, list[int]] = defaultdict(list)
    found: dict[int, int] = {}
    for place, some in enumerate(pairs):
        if len(some & holding.keys()) < _ALIKE * len(some):
            continue
        rarest = sorted(some, key=lambda pair: (holding[pair], pair))
        prefix = rarest[: len(rarest) - ceil(_ALIKE * len(rarest)) + 1]
        near = sorted({other for pair in prefix for other in by_pair[pair]})
        same = (at for at in near if _alike(some, pairs[at]) and named(at) == named(place))
        if (first := next(same, None)) is not None:
            found[place] = first
            continue
        for pair in prefix:
            by_pair[pair].append(place)
    return found


def _shared(texts: Sequence[_Pairs]) -> Counter[str]:
    """The pairs that more texts than one have, with how many have each."""
    once, again = set[str](), set[str]()
    for some in texts:
        again |= once & some
        once |= some
    return Counter(chain.from_iterable(some & again for some in texts))


@lru_cache(_MOST_KNOWN)  # blocks look among their own first, and the merge among all
def _pairs(text: str) -> _Pairs:
    """Each two words that follow each other: who did what to whom is in their order. Of a text
    without words an empty one."""
    return frozenset(map(" ".join, pairwise(["", *text.casefold().split()]))) or _NO_PAIRS


def _alike(one: _Pairs, other: _Pairs) -> bool:
    common = len(one & other)
    return common >= _ALIKE * (len(one) + len(other) - common)


def _named(texts: Sequence[str], place: int) -> frozenset[str]:
    text = texts[place]
    return frozenset(name.casefold() for name in (*identifiers(text), *names(text)))
