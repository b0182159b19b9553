"""What embedders share: arrays of unit vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from agent_memory.errors import ModelOutputInvalid


def unit_rows(rows: Any) -> np.ndarray:
    """The rows as float32, each of length 1; rows of zeros stay as they are.

    Raises:
        ModelOutputInvalid: They are not rows of finite numbers. Stored, they would never be found.
    """
    try:
        array = np.asarray(rows, dtype=np.float64)  # whose squares do not overflow
    except (TypeError, ValueError):
        array = np.full((1, 1), np.nan)
    if array.ndim != 2 or not np.isfinite(array).all():
        raise ModelOutputInvalid(
            "The embedding model answered with something else than finite numbers."
        )
    lengths = np.linalg.norm(array, axis=1, keepdims=True)
    units: np.ndarray = np.divide(array, lengths, out=np.zeros_like(array), where=lengths > 0)
    return units.astype(np.float32)


def embed_texts(
    texts: Sequence[str], dimension: int, embed: Callable[[list[str]], Any]
) -> np.ndarray:
    """Unit vectors for the texts; blank ones get zeros, and the model never sees them.

    Providers refuse empty texts, and a model's vector for one would be noise. A half of a
    surrogate pair, which no model can read, counts as a question mark.

    Raises:
        ModelOutputInvalid: The model's vectors are not vectors.
    """
    vectors = np.zeros((len(texts), dimension), dtype=np.float32)
    filled = [index for index, text in enumerate(texts) if text.strip()]
    if filled:
        readable = [texts[index].encode("utf-8", "replace").decode() for index in filled]
        vectors[filled] = unit_rows(embed(readable))
    return vectors
