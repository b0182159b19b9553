"""The views that records are found by, and what each counts. No imports: all may import it."""

from __future__ import annotations

from typing import Literal

WORDS = ("words", "words_around")
MEANINGS = ("meaning", "meaning_around")

VIEWS = (*WORDS, *MEANINGS)
"""The four views, in the order in which scores are given."""

WEIGHTS = (0.15, 0.30, 0.35, 0.20)
"""Of the views, in their order: those that held on every kind of conversation they were tried on,
short turns between people and long answers of assistants alike."""

LEAST = 0.25
"""What is less than this of the best possible costs no answer, but tokens: of the evidence that
2,000 tokens hold it drops less than one in a thousand."""

Fusion = Literal["blend", "rrf"]

RRF = 60.0
"""The usual constant of reciprocal rank fusion."""

_LEAST_DEPTH = 50


def depth_for(limit: int) -> int:
    """How many of each view to look at, where so many records are asked for."""
    return max(_LEAST_DEPTH, 2 * limit)
