"""Helpers for embedders: they build arrays of unit vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from agent_memory.errors import AgentMemoryError, ModelOutputInvalid, ModelUnavailable

T = TypeVar("T")


def answered(name: str, function: Callable[[Any], T], argument: Any) -> T:
    """Call a user's function. Errors that are not this library's become `ModelUnavailable`."""
    try:
        return function(argument)
    except AgentMemoryError:
        raise
    except Exception as error:  # a user's function may raise anything
        raise ModelUnavailable(
            f"The embedder {name!r} failed with {type(error).__name__}: {error}"
        ) from error


def unit_rows(rows: Any, source: str = "The embedding model") -> np.ndarray:
    """Scale rows to length 1. Rows of zeros stay. Error texts name `source` as the rows' origin.

    Raises:
        ModelOutputInvalid: The rows differ in length, or hold a number that is not finite.
    """
    try:
        array = np.asarray(rows, dtype=np.float64)  # squares do not overflow in double precision
    except (TypeError, ValueError, RuntimeError):  # such as a tensor that needs a gradient
        array = np.full((1, 1), np.nan)
    if array.ndim != 2 or not np.isfinite(array).all():
        raise ModelOutputInvalid(
            f"{source} returned rows that are not all finite numbers. Return one vector for each "
            "text, all of the same length."
        )
    lengths = np.linalg.norm(array, axis=1, keepdims=True)
    units: np.ndarray = np.divide(array, lengths, out=np.zeros_like(array), where=lengths > 0)
    return units.astype(np.float32)


_PART = 1_000
"""Maximum number of characters in a part of a text. Every model accepts that many."""


def embed_texts(texts: Sequence[str], size: int, embed: Callable[[list[str]], Any]) -> np.ndarray:
    """Return unit vectors for texts. Blank texts, which providers refuse, get zeros.

    Models truncate or refuse long texts. A long text is therefore embedded in parts. Its vector is
    the mean of the parts' vectors, weighted by length. Lone surrogates, which models cannot read,
    become question marks.
    """
    filled = [index for index, text in enumerate(texts) if text.strip()]
    if not filled:
        return np.zeros((len(texts), size), np.float32)
    split = [[part for part, _ in parts_of(texts[index])] for index in filled]
    rows = unit_rows(embed([part for parts in split for part in parts]))
    if len(rows) > len(split):
        lengths = np.array([len(part) for parts in split for part in parts], np.float32)
        starts = np.cumsum([0, *(len(parts) for parts in split[:-1])])
        rows = unit_rows(np.add.reduceat(rows * lengths[:, None], starts, axis=0))
    vectors = np.zeros((len(texts), rows.shape[1]), np.float32)
    vectors[filled] = rows
    return vectors


def parts_of(text: str) -> list[tuple[str, int]]:
    """Split a text into parts of at most 1,000 characters, between words if possible.

    Return each part with its position in the text. Lone surrogates become question marks.
    """
    text = text.encode("utf-8", "replace").decode()
    parts, begin = list[tuple[str, int]](), 0
    while len(text) - begin > _PART:
        blank = text.rfind(" ", begin + _PART // 2, begin + _PART)
        end = blank if blank > 0 else begin + _PART
        parts.append((text[begin:end], begin))
        begin = end
    return [(part, at) for part, at in (*parts, (text[begin:], begin)) if part.strip()]
