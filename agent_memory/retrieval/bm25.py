"""Okapi BM25 weights. The functions take numbers or arrays, and do not import numpy.

See Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond", 2009. BM25
compares the length of a text with the mean length in the collection. This module compares it with a
fixed length, so that adding texts does not change weights.

The hook for a coding agent's prompts imports this module, and numpy would load too slowly there.
"""

from __future__ import annotations

from typing import Any

TURN_LENGTH = 20.0
"""Words in a message of usual length, without stop words."""

K1 = 0.9
"""Saturation of word frequency: lower values make repetitions count less."""

_B = 0.75  # effect of the text length, from 0 to 1


def damping(words: float, usual: float) -> float:
    """Return a number that dampens word frequency, and rises with the number of words in the text.

    A word that occurs n times has `n / (n + damping)` of its maximum weight. `usual` is the number
    of words in a usual text.
    """
    return K1 * (1 - _B + _B * words / usual)


def odds(count: int, holding: Any) -> Any:
    """Return the odds that a text lacks a word that `holding` of `count` texts have.

    The word's rarity is `log(1 + odds)`, as in Lucene, which is never below 0. `holding` may be an
    array.
    """
    return (count - holding + 0.5) / (holding + 0.5)
