"""Cosines as they are, over stores that find only what has a score above 0."""

from __future__ import annotations

from base64 import b64decode, b64encode

import numpy as np

from agent_memory.errors import InvalidInput

_ALONG, _ACROSS = 0.6, 0.8  # 0.36 c + 0.64 is above 0 for every cosine c
_MARGIN = 3e-4
"""More than single precision takes a cosine off by."""

_SMALL, _LARGE = np.dtype("<f4"), np.dtype("<f8")


def vector_of(value: object, what: str) -> np.ndarray:
    """A vector as float64, scaled by a power of two so that no sum of its squares overflows.

    Args:
        value: A row of numbers.
        what: Names it in errors, at the beginning of a sentence.

    Raises:
        InvalidInput: It is none, or has no direction.
    """
    try:
        row = np.asarray(value)
    except (TypeError, ValueError):
        row = np.empty(0)
    if row.ndim != 1 or not row.size or row.dtype.kind not in "fiu":
        raise InvalidInput(f"{what} is not a vector. Give a list of numbers, or an array of them.")
    exact = row.astype(np.float64)
    largest = float(np.abs(exact).max())
    if not np.isfinite(largest):
        raise InvalidInput(f"{what} holds a number that is not finite.")
    if not largest:
        raise InvalidInput(f"{what} is all zeros, which is like nothing and unlike nothing.")
    scaled: np.ndarray = np.ldexp(exact, -np.frexp(largest)[1])
    return scaled


def lifted(vector: np.ndarray) -> np.ndarray:
    """A unit vector of one more number: the products of two of them rise with the cosine of what
    they were made of, and are above 0."""
    unit = vector / np.linalg.norm(vector)
    return np.append(_ALONG * unit, _ACROSS).astype(np.float32)


def most_unseen(score: float) -> float:
    """The cosine that nothing passes of which the product is not above this score."""
    return (score - _ACROSS**2) / _ALONG**2 + _MARGIN


def cosines(rows: np.ndarray, vector: np.ndarray) -> list[float]:
    """The cosine of each row with a vector; the same for the same row, whatever is beside it."""
    products = (rows * vector).sum(axis=1)
    # the root of the product: of a vector with itself that is exact
    lengths = np.sqrt((rows * rows).sum(axis=1) * (vector * vector).sum())
    found: list[float] = np.clip(products / lengths, -1.0, 1.0).tolist()
    return found


def packed(vector: np.ndarray) -> str:
    """A vector as text, exactly; in single precision where that says the same."""
    small = vector.astype(_SMALL)
    kept = small if (small == vector).all() else vector.astype(_LARGE)
    return b64encode(kept.tobytes()).decode("ascii")


def unpacked(text: str, dimension: int) -> np.ndarray:
    """The inverse of `packed`."""
    data = b64decode(text)
    kind = _SMALL if len(data) == dimension * _SMALL.itemsize else _LARGE
    return np.frombuffer(data, kind).astype(np.float64)
