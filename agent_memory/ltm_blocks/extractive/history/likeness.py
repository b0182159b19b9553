"""Which facts may say the same, or change one another. Pure."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from math import log
from typing import TYPE_CHECKING

from agent_memory.retrieval.words import words

if TYPE_CHECKING:
    import numpy as np

ALIKE = 0.35
"""What words or vectors must have in common for two facts to be compared by a model."""

_MOST_KNOWN = 10_000
_MARKS = ".,;:!?\"'`()[]{}<>"
_MORE_MARKS = "\u2026\u00a1\u00ab\u00bb\u00bf\u201c\u201d\u201e\u2018\u2013\u2014\u3001\u3002"
_SMALL_WORDS = "a also am an are is just really the user very"
_CLAUSE_WORDS = "and but or that where which while who whose"
_PLACING_WORDS = (
    "about after against along among around as at before behind below between by during for from "
    "in into near of off on over since through till to towards under until with within without"
)
_SMALL, _CLAUSES, _PLACING = (
    frozenset(some.split()) for some in (_SMALL_WORDS, _CLAUSE_WORDS, _PLACING_WORDS)
)


@lru_cache(_MOST_KNOWN)
def key_of(text: str) -> str:
    """What two texts have in common that are the same but for case, blanks and the marks between
    words."""
    folded = unicodedata.normalize("NFKC", text).casefold().replace("\u2019", "'")
    return " ".join(bare for word in folded.split() if (bare := word.strip(_MARKS + _MORE_MARKS)))


@lru_cache(_MOST_KNOWN)
def shingles(text: str) -> frozenset[tuple[str, str]]:
    """Each two words that follow each other, with the beginning and the end."""
    return frozenset(pairwise(["", *key_of(text).split(), ""]))


def jaccard(one: frozenset[tuple[str, str]], other: frozenset[tuple[str, str]]) -> float:
    """Of all shingles, the share that both have (Broder, 1997)."""
    return len(one & other) / len(one | other) if one or other else 1.0


@lru_cache(_MOST_KNOWN)
def gist(text: str) -> tuple[tuple[str, ...], ...]:
    """All words but those that change nothing; what differs in these does not say the same.

    Within a clause, what begins with a preposition may stand anywhere: "at Acme as an engineer".
    """
    clauses: list[list[str]] = [[""]]
    for word in key_of(text).split():
        if word in _CLAUSES:
            clauses.append([word])
        elif word in _PLACING:
            clauses[-1].append(word)
        elif word not in _SMALL:
            clauses[-1][-1] += f" {word}"
    return tuple(tuple(sorted(phrases)) for phrases in clauses)


def cosines(vectors: np.ndarray, others: np.ndarray) -> np.ndarray:
    """(n, m) cosines of unit vectors; 0 where they have no columns."""
    found: np.ndarray = vectors @ others.T
    return found


def candidates(
    text: str,
    kind: tuple[str, str],
    others: Sequence[str],
    kinds_of_others: Sequence[tuple[str, str]],
    cosine: np.ndarray,
) -> list[tuple[int, float]]:
    """The places of the older texts that a new one may change or repeat, and how alike they are.

    Best first: those of the same kind, and those that have much in common in words or meaning.

    Args:
        text: The new text.
        kind: Its subject and category.
        others: The older texts.
        kinds_of_others: Subject and category of each.
        cosine: (older,) cosines.
    """
    bag, near_by = _bag(text), cosine.tolist()
    likeness = [max(near_by[at], _share(bag, _bag(other))) for at, other in enumerate(others)]
    near = [
        at for at, likely in enumerate(likeness) if likely >= ALIKE or kind == kinds_of_others[at]
    ]
    return [(at, likeness[at]) for at in sorted(near, key=lambda at: -likeness[at])]


def most_alike(texts: Sequence[str], said: Sequence[str], limit: int) -> list[int]:
    """The places of the texts that what was said may say again or change, in their order.

    Those with the rarest words in common with it (by inverse document frequency, Sparck Jones,
    1972), the later first where none are.

    Args:
        texts: The older texts.
        said: What was said.
        limit: How many.
    """
    if len(texts) <= limit:
        return list(range(len(texts)))
    bags = [_bag(text) for text in texts]
    heard = frozenset(word for text in said for word in words(text))
    counts = Counter(word for bag in bags for word in bag)
    weights = [sum(log(1 + len(texts) / counts[word]) for word in bag & heard) for bag in bags]
    best = sorted(range(len(texts)), key=lambda at: (-weights[at], -at))
    return sorted(best[:limit])


@lru_cache(_MOST_KNOWN)
def _bag(text: str) -> frozenset[str]:
    return frozenset(words(text))


def _share(one: frozenset[str], other: frozenset[str]) -> float:
    least = min(len(one), len(other))
    return len(one & other) / least if least else 0.0
