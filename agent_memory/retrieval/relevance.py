"""Whether anything at all bears on a question. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from agent_memory.retrieval.languages import languages_of
from agent_memory.retrieval.views import VIEWS
from agent_memory.retrieval.words import words

_OWN_MEANING = VIEWS.index("meaning")
_MOST_WORDS = 0.5
_MANY_WORDS = 4
_SOME_WORDS = 2
_MANY = 200


def bears(question: str, texts: Sequence[str], scores: np.ndarray, unrelated: float) -> bool:
    """Whether what was found has to do with the question.

    The views tell only which records bear on it more than others. So the best of them has to mean
    something like it, or to have half of its words, or four; where nothing tells what they mean,
    two of them do as well. Of few records the best is by chance less near than of many: so less is
    asked of it, as the logarithm of their number; and few cost little.

    Args:
        question: The question.
        texts: What views found for it.
        scores: (n, views) what each view gives each.
        unrelated: Cosine of the best of many messages with what is foreign to all of them; 0 where
            that is not known.
    """
    if not len(texts):
        return False
    by_meaning = bool(scores[:, _OWN_MEANING].any())
    few = min(1.0, math.log(len(texts)) / math.log(_MANY))
    if by_meaning and scores[:, _OWN_MEANING].max() >= few * unrelated:
        return True
    languages = languages_of(question)
    asked = set(words(question, languages))
    most = max(len(asked.intersection(words(text, languages))) for text in texts)
    enough = min(_MOST_WORDS * len(asked), _MANY_WORDS if by_meaning else _SOME_WORDS)
    if not by_meaning:
        enough = max(1.0, few * enough)
    return bool(asked) and most >= enough
