"""What embedders share: arrays of unit vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from agent_memory.errors import AgentMemoryError, ModelOutputInvalid, ModelUnavailable


def answered(name: str, function: Callable[[Any], Any], asked: Any) -> Any:
    """Call a function of the user's own, and return its result.

    Raises:
        ModelUnavailable: It failed.
    """
    try:
        return function(asked)
    except AgentMemoryError:
        raise
    except Exception as error:  # it may be anybody's function
        raise ModelUnavailable(
            f"The embedder {name!r} failed with {type(error).__name__}: {error}"
        ) from error


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


_PART = 1_000
"""Characters that are embedded at a time: no model reads less, and many read not much more."""


def embed_texts(
    texts: Sequence[str], dimension: int, embed: Callable[[list[str]], Any]
) -> np.ndarray:
    """Unit vectors for the texts; blank ones get zeros, and the model never sees them.

    Models cut off what is too long for them, or refuse it. So a long text is embedded in parts, and
    its vector is the mean of theirs, by their lengths.

    Providers refuse empty texts, and a model's vector for one would be noise. A half of a
    surrogate pair, which no model can read, counts as a question mark.

    Raises:
        ModelOutputInvalid: The model's vectors are not vectors.
    """
    vectors = np.zeros((len(texts), dimension), dtype=np.float32)
    filled = [index for index, text in enumerate(texts) if text.strip()]
    if filled:
        split = [[part for part, _ in parts_of(texts[index])] for index in filled]
        rows = unit_rows(embed([part for parts in split for part in parts]))
        if len(rows) > len(split):
            lengths = np.array([len(part) for parts in split for part in parts], np.float32)
            starts = np.cumsum([0, *(len(parts) for parts in split[:-1])])
            rows = unit_rows(np.add.reduceat(rows * lengths[:, None], starts, axis=0))
        vectors[filled] = rows
    return vectors


def parts_of(text: str) -> list[tuple[str, int]]:
    """Parts of a text that are short enough, cut between words where there are any, each with the
    character at which it begins. A half of a surrogate pair counts as a question mark."""
    text = text.encode("utf-8", "replace").decode()
    parts, begin = list[tuple[str, int]](), 0
    while len(text) - begin > _PART:
        blank = text.rfind(" ", begin + _PART // 2, begin + _PART)
        end = blank if blank > 0 else begin + _PART
        parts.append((text[begin:end], begin))
        begin = end
    return [(part, at) for part, at in (*parts, (text[begin:], begin)) if part.strip()]
