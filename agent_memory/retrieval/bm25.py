"""Okapi BM25 weights, for numbers and arrays, without importing numpy.

Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond", 2009. Lengths are
compared with a fixed length, not with the mean of a collection: weights then do not change when
texts are added. On conversations this recalls as much, and more among long answers, where the mean
is far from the length of a person's message.

numpy takes longer to load than a coding agent's hook may take for a prompt; see
`agent_memory.integrations.hooks.prompt`.
"""

from __future__ import annotations

from typing import Any

TURN_LENGTH = 20.0
"""Words in a turn of usual length, without stop words."""

K1 = 0.9
"""Saturation of word frequency: lower values make repetitions count less."""

_B = 0.75  # text lengths differ widely


def damping(words: float, usual: float) -> float:
    """Return the length-dependent constant of word frequency.

    A word that occurs n times has `n / (n + damping)` of its maximum weight.

    Args:
        words: Words in the text.
        usual: The reference length.
    """
    return K1 * (1 - _B + _B * words / usual)


def odds(count: int, holding: Any) -> Any:
    """Return the odds against a text having a word that `holding` of `count` texts have.

    The word's rarity is `log(1 + odds)`, which is never below 0, as in Lucene.

    Args:
        count: Number of texts.
        holding: Number of texts with the word, or an array of such numbers.
    """
    return (count - holding + 0.5) / (holding + 0.5)
