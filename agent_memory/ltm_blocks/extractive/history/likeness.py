"""Which facts may say the same, or change one another. Pure."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

from agent_memory.retrieval.words import words

if TYPE_CHECKING:
    import numpy as np

ALIKE = 0.35
"""What words or vectors must have in common for two facts to be compared by a model."""

_EACH = 20
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


def key_of(text: str) -> str:
    """What two texts have in common that are the same but for case, blanks and the marks between
    words."""
    folded = unicodedata.normalize("NFKC", text).casefold().replace("\u2019", "'")
    return " ".join(bare for word in folded.split() if (bare := word.strip(_MARKS + _MORE_MARKS)))


def shingles(text: str) -> frozenset[tuple[str, str]]:
    """Each two words that follow each other, with the beginning and the end."""
    return frozenset(pairwise(["", *key_of(text).split(), ""]))


def jaccard(one: frozenset[tuple[str, str]], other: frozenset[tuple[str, str]]) -> float:
    """Of all shingles, the share that both have (Broder, 1997)."""
    return len(one & other) / len(one | other) if one or other else 1.0


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
    texts: Sequence[str],
    kinds: Sequence[tuple[str, str]],
    others: Sequence[str],
    kinds_of_others: Sequence[tuple[str, str]],
    cosine: np.ndarray,
) -> list[list[int]]:
    """For each new text, the places of the older ones that it may change or repeat, best first.

    Those of the same kind, and those that have much in common in words or meaning; twenty at most.

    Args:
        texts: The new texts.
        kinds: Subject and category of each.
        others: The older texts.
        kinds_of_others: Subject and category of each.
        cosine: (new, older) cosines.
    """
    bags = [_bag(text) for text in others]
    found = []
    for place, text in enumerate(texts):
        bag, near_by = _bag(text), cosine[place].tolist()
        likeness = [max(near_by[at], _share(bag, other)) for at, other in enumerate(bags)]
        near = [
            at
            for at, likely in enumerate(likeness)
            if likely >= ALIKE or kinds[place] == kinds_of_others[at]
        ]
        found.append(sorted(near, key=lambda at: -likeness[at])[:_EACH])
    return found


@lru_cache(_MOST_KNOWN)
def _bag(text: str) -> frozenset[str]:
    return frozenset(words(text))


def _share(one: frozenset[str], other: frozenset[str]) -> float:
    least = min(len(one), len(other))
    return len(one & other) / least if least else 0.0
