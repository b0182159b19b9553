"""What a word is worth: Okapi BM25, for numbers and for arrays of them, without numpy.

Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond", 2009. Lengths are
compared with a fixed one, not with the mean of a collection, so that weights do not change when
texts are added; on conversations that found no less, and more among long answers, where the mean is
far from what a person says.

numpy takes longer to load than a hook of a coding agent may take for a prompt: see
`agent_memory.integrations.hooks.words`.
"""

from __future__ import annotations

from typing import Any

TURN_LENGTH = 20.0
"""Words of a turn that is neither long nor short; stop words are not counted."""


K1 = 0.9
"""How soon saying a word again adds nothing."""

_B = 0.75  # texts are of very different lengths


def damping(words: float, usual: float) -> float:
    """What a word's count is held against: a word that stands there n times is worth
    `n / (n + damping)` of the most it can be.

    Args:
        words: How many words the text has.
        usual: The length that it is compared with.
    """
    return K1 * (1 - _B + _B * words / usual)


def odds(count: int, holding: Any) -> Any:
    """The odds against a text having a word that `holding` of `count` have. The word's rarity is
    the logarithm of 1 more: never below 0, as in Lucene.

    Args:
        count: How many texts there are.
        holding: How many have the word: a number, or an array of them.
    """
    return (count - holding + 0.5) / (holding + 0.5)
