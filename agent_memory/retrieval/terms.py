"""Words as numbers with weights, so that any index of sparse vectors can rank by them.

Okapi BM25 in two halves: the weight of a word in a text is made here, once, and its rarity is
multiplied in by who searches. Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25
and Beyond", 2009. Lengths are compared with a fixed one, not with the mean of a collection, so that
weights do not change when texts are added; on conversations that found no less, and more among long
answers, where the mean is far from what a person says.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

import numpy as np

from agent_memory.retrieval.words import words, words_of

TURN_LENGTH = 20.0
"""Words of a turn that is neither long nor short; stop words are not counted."""

SURROUNDED_LENGTH = 50.0
"""The same for a turn within its surroundings."""

_K1 = 0.9
_B = 0.75  # texts are of very different lengths
_MOST_KNOWN = 100_000


class Terms(NamedTuple):
    """A sparse vector.

    Attributes:
        ids: The words' numbers, uint32, each once.
        weights: What each is worth in the text, float32 above 0.
    """

    ids: np.ndarray
    weights: np.ndarray


NO_TERMS = Terms(np.empty(0, np.uint32), np.empty(0, np.float32))


def term_of(word: str) -> int:
    """The number of a word, the same on every machine.

    Of 100,000 words about one has another's number, which does no harm worth a dictionary.
    """
    return zlib.crc32(word.encode("utf-8", "surrogatepass"))


@lru_cache(_MOST_KNOWN)
def terms_of(written: str) -> tuple[int, ...]:
    """The numbers of the words of what stands between two blanks."""
    return tuple(term_of(word) for word in words_of(written))


def asked(question: str) -> tuple[int, ...]:
    """The numbers of a question's words, each once."""
    return tuple(dict.fromkeys(term_of(word) for word in words(question)))


def weighted(written: Iterable[Sequence[int]], usual: float) -> Terms:
    """What the words of a text are worth in it.

    Args:
        written: The numbers of its words, in pieces.
        usual: The length that it is compared with.
    """
    counts = Counter(chain.from_iterable(written))
    if not counts:
        return NO_TERMS
    times = np.fromiter(counts.values(), np.float32, len(counts))
    damping = _K1 * (1 - _B + _B * float(times.sum()) / usual)
    weights = (_K1 + 1) * times / (times + np.float32(damping))
    # as stores keep them
    return Terms(
        np.fromiter(counts, np.uint32, len(counts)), weights.astype(np.float16).astype(np.float32)
    )


def rarity(count: int, holding: np.ndarray) -> np.ndarray:
    """How much a word tells that `holding` of `count` texts have; never below 0, as in Lucene."""
    return np.log1p((count - holding + 0.5) / (holding + 0.5))
