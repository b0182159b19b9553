"""Words as numbers with weights, so that any index of sparse vectors can rank by them.

The weight of a word in a text is made here, once, and its rarity is multiplied in by who searches.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from agent_memory.retrieval.bm25 import K1, damping
from agent_memory.retrieval.languages import ENGLISH, elected, vote_of
from agent_memory.retrieval.words import Known, forms_of

_PLAIN = 0.25  # of a word that is there in its own language too


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


class Written(NamedTuple):
    """What stands between two blanks.

    Attributes:
        ids: The numbers of its words, in each language of the text.
        plain: Those of the words as they are in any language, where they are others: for who asks
            in another one, and for what was stored before languages were told apart.
        size: How many words it has, in however many forms.
        vote: For which languages it votes; see `agent_memory.retrieval.languages`.
    """

    ids: tuple[int, ...]
    plain: tuple[int, ...]
    size: int
    vote: int = 0


_IDS, _OF_PLAIN, _SIZE, _VOTE = map(itemgetter, range(4))


def written(text: str, languages: frozenset[str] | None = None) -> list[Written]:
    """The numbers of a text's words, between blanks.

    Args:
        text: The text.
        languages: Of its words in Latin letters; None for those that it may be in.
    """
    pieces = text.split()
    read = _in_english.each(pieces)
    if languages is None:
        languages = elected(map(_VOTE, read))
    return read if languages == ENGLISH else _written.each(pieces, languages)


@Known
def _in_english(piece: str) -> Written:
    return _written(piece, ENGLISH)


@Known
def _written(piece: str, languages: frozenset[str]) -> Written:
    forms = forms_of(piece, languages)
    return Written(
        tuple(term_of(stem) for one in forms for stem in one.stems),
        tuple(term_of(one.plain) for one in forms if one.plain not in one.stems),
        len(forms),
        vote_of(piece),
    )


def weighted(pieces: Sequence[Written], usual: float) -> Terms:
    """What the words of a text are worth in it.

    Args:
        pieces: Its words.
        usual: The length that it is compared with.
    """
    counts: dict[int, float] = {**Counter(chain.from_iterable(map(_IDS, pieces)))}
    for number in chain.from_iterable(map(_OF_PLAIN, pieces)):
        counts[number] = counts.get(number, 0) + _PLAIN
    if not counts:
        return NO_TERMS
    times = np.fromiter(counts.values(), np.float32, len(counts))
    against = np.float32(damping(sum(map(_SIZE, pieces)), usual))
    weights = (K1 + 1) * times / (times + against)
    # as stores keep them
    return Terms(
        np.fromiter(counts, np.uint32, len(counts)), weights.astype(np.float16).astype(np.float32)
    )
