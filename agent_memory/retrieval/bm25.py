"""Okapi BM25 weights, for numbers and arrays, without importing numpy.

See Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond", 2009. Text
lengths are compared with a fixed length, so that adding texts does not change weights. BM25
compares them with the mean of the collection. On conversations, a fixed length recalls as much. It
recalls more among long answers, whose mean is far from the length of a person's message.

The hook for a coding agent's prompts imports this module. numpy would take too long to load there.
"""

from __future__ import annotations

from typing import Any

TURN_LENGTH = 20.0
"""Words in a turn of usual length, without stop words."""

K1 = 0.9
"""Saturation of word frequency: lower values make repetitions count less."""

_B = 0.75  # text lengths differ widely


def damping(words: float, usual: float) -> float:
    """Return the constant that dampens the frequency of words, which depends on text length.

    A word that occurs n times has `n / (n + damping)` of its maximum weight.

    Args:
        words: Words in the text.
        usual: The usual length, in words.
    """
    return K1 * (1 - _B + _B * words / usual)


def odds(count: int, holding: Any) -> Any:
    """Return the odds that a text lacks a word, if `holding` of `count` texts have the word.

    The word's rarity is `log(1 + odds)`, as in Lucene, which is never below 0.

    Args:
        count: Number of texts.
        holding: Number of texts with the word, or an array of such numbers.
    """
    return (count - holding + 0.5) / (holding + 0.5)
