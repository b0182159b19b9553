"""What an encoder says of a text: one vector for all of it, and one for each word piece."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

TOKEN = 64
"""Numbers in the vector of a word piece, each in eight bits; see `benchmarks/projection.py`."""


class Encoding(NamedTuple):
    """A text as an encoder reads it. A value.

    Attributes:
        vector: (dimension,) float32 of unit length; zeros for a blank text, no numbers where
            nothing embeds.
        tokens: (pieces, TOKEN) int8: unit vectors times 127 of the word pieces that are no
            punctuation, in order; no rows where the encoder gives none.
        starts: (pieces,) int32: at which character of the text each of them begins.
    """

    vector: np.ndarray
    tokens: np.ndarray
    starts: np.ndarray


NO_TOKENS = np.empty((0, TOKEN), np.int8)
NO_STARTS = np.empty(0, np.int32)


def encoding_of(vector: np.ndarray) -> Encoding:
    """The encoding of a text of which only one vector is known."""
    return Encoding(vector, NO_TOKENS, NO_STARTS)
