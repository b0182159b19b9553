"""Whether anything at all bears on a question. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from agent_memory.retrieval.views import VIEWS
from agent_memory.retrieval.words import words

_OWN_MEANING = VIEWS.index("meaning")
_OWN_WORDS = VIEWS.index("words")
_MOST_WORDS = 0.5
_MANY = 200


def bears(question: str, texts: Sequence[str], scores: np.ndarray, unrelated: float) -> bool:
    """Whether what was found has to do with the question.

    The views tell only which records bear on it more than others. So the best of them has to mean
    something like it, or to have half of its words. Of few records the best is by chance less near
    than of many: so less is asked of it, as the logarithm of their number; and few cost little.

    Args:
        question: The question.
        texts: What views found for it.
        scores: (n, views) what each view gives each.
        unrelated: Cosine of the best of many messages with what is foreign to all of them; 0 where
            that is not known: then everything may bear on it.
    """
    if not len(texts) or unrelated <= 0:
        return bool(len(texts))
    asked_of_it = unrelated * min(1.0, math.log(len(texts)) / math.log(_MANY))
    if scores[:, _OWN_MEANING].max() >= asked_of_it:
        return True
    asked = set(words(question))
    best = texts[int(scores[:, _OWN_WORDS].argmax())]
    return bool(asked) and len(asked & set(words(best))) >= _MOST_WORDS * len(asked)
