"""Whether anything at all bears on a question. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from agent_memory.ranking.views import VIEWS
from agent_memory.ranking.words import words
from agent_memory.records import Hit

_OWN_MEANING = VIEWS.index("meaning")
_OWN_WORDS = VIEWS.index("words")
_MOST_WORDS = 0.5
_MANY = 200


def bears(question: str, hits: Sequence[Hit], unrelated: float) -> bool:
    """Whether what was found has to do with the question.

    The views tell only which records bear on it more than others. So the best of them has to mean
    something like it, or to have half of its words. Of few records the best is by chance less near
    than of many: so less is asked of it, as the logarithm of their number; and few cost little.

    Args:
        question: The question.
        hits: What views found for it.
        unrelated: Cosine of the best of many messages with what is foreign to all of them; 0 where
            that is not known: then everything may bear on it.
    """
    if not hits or unrelated <= 0:
        return bool(hits)
    asked_of_it = unrelated * min(1.0, math.log(len(hits)) / math.log(_MANY))
    if max(hit.scores[_OWN_MEANING] for hit in hits) >= asked_of_it:
        return True
    asked = set(words(question))
    best = max(hits, key=lambda hit: hit.scores[_OWN_WORDS])
    return bool(asked) and len(asked & set(words(best.record.text))) >= _MOST_WORDS * len(asked)
