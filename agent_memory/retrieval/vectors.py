"""Vectors of texts and of word pieces, stored as rows of eight-bit numbers. Pure.

The last functions compare the vectors of users exactly.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np

from agent_memory.core.lazy import lazy_property
from agent_memory.errors import InvalidInput

TOKEN = 64
"""Numbers in a word piece's vector, of 8 bits each; see `benchmarks/recall/projection.py`."""


class Encoding(NamedTuple):
    """The encoding of a text. Immutable."""

    # (dimension,) float32 of unit length; zeros for a blank text, (0,) without an embedder
    vector: np.ndarray
    # (pieces, TOKEN) int8: the unit vectors, times 127, of the word pieces in order. Punctuation
    # and stop words are left out. No rows if the encoder gives no word pieces.
    tokens: np.ndarray
    starts: np.ndarray  # (pieces,) int32: the character of the text at which each piece begins


NO_TOKENS = np.empty((0, TOKEN), np.int8)
NO_STARTS = np.empty(0, np.int32)


def encoding_of(vector: np.ndarray) -> Encoding:
    return Encoding(vector, NO_TOKENS, NO_STARTS)


LEAST_LENGTH = 64
"""Minimum length of vectors that are rounded. Rounding shorter vectors would save little."""

_MOST = 127
_LEAST = np.finfo(np.float16).tiny  # the smallest number with full half precision


@dataclass(frozen=True, eq=False)
class Vectors:
    """A matrix whose rows may be rounded. Immutable."""

    rows: np.ndarray  # (n, length) float32 or int8; (n, 0) if all numbers are 0
    scales: np.ndarray  # (n,) float32, the factor of each row; 0 if all its numbers are 0
    length: int  # numbers in a row

    @classmethod
    def of(cls, matrix: np.ndarray, compact: bool) -> Self:
        """Build from an (n, length) float32 matrix.

        With `compact`, the rows are rounded, if every row can be rounded.
        """
        count, length = matrix.shape
        if not matrix.any():
            return cls(np.empty((count, 0), np.float32), np.zeros(count, np.float32), length)
        if compact and length >= LEAST_LENGTH:
            scales, fit = _scales(matrix)
            if fit.all():
                by = np.where(scales > 0, scales, 1)[:, None]
                rows = np.clip(np.rint(matrix / by), -_MOST, _MOST).astype(np.int8)
                return cls(rows, scales, length)
        scales = np.asarray(matrix.any(axis=1), np.float32)
        return cls(np.ascontiguousarray(matrix, np.float32), scales, length)

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        width = max(part.rows.shape[1] for part in parts)
        rows = [
            part.rows if part.rows.shape[1] else np.zeros((len(part.rows), width), np.int8)
            for part in parts
        ]
        scales = np.concatenate([part.scales for part in parts])
        return cls(np.concatenate(rows), scales, max(part.length for part in parts))

    @property
    def nbytes(self) -> int:
        return self.rows.nbytes + self.scales.nbytes

    def only(self, keep: np.ndarray) -> Self:
        return type(self)(self.rows[keep], self.scales[keep], self.length)

    def floats(self) -> np.ndarray:
        if not self.rows.shape[1]:
            return np.zeros((len(self.rows), self.length), np.float32)
        return np.asarray(self.rows * self.scales[:, None])

    @lazy_property
    def _as_floats(self) -> np.ndarray:
        return self.rows.astype(np.float32, copy=False)

    def products(self, vector: np.ndarray, *, copy: bool) -> np.ndarray:
        """Return the dot product of each row with a float32 vector.

        With `copy`, the rows are copied to floats once. Further products are five times faster.
        """
        if not self.rows.shape[1]:
            return np.zeros(len(self.rows), np.float32)
        rows = self._as_floats if copy else self.rows
        return np.asarray(products(rows, vector[:, None])[:, 0] * self.scales)


def _scales(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the scale of each row, and which rows can be rounded.

    The scale derives from the row's largest number in half precision, so rounding twice changes
    nothing. A row cannot be rounded if that number is too large or too small for half precision.
    """
    largest = np.abs(matrix).max(axis=1, initial=0.0)
    with np.errstate(over="ignore"):
        halved = largest.astype(np.float16)
    fit = np.isfinite(halved) & ((halved >= _LEAST) | (largest == 0))
    return halved.astype(np.float32) / np.float32(_MOST), fit


_MOST_PRODUCTS = 2**18
"""The most multiplications of a product that OpenBLAS computes on the caller's thread."""


class Tokens(NamedTuple):
    """Word-piece vectors of several records, concatenated. Immutable."""

    rows: np.ndarray  # (pieces, TOKEN) int8; see `Encoding.tokens`
    # (records + 1,) the first row of each record, followed by the total number of rows
    starts: np.ndarray

    @classmethod
    def of(cls, records: Sequence[np.ndarray]) -> Self:
        starts = np.zeros(len(records) + 1, np.uint32)
        np.cumsum([len(rows) for rows in records], out=starts[1:])
        return cls(np.concatenate([NO_TOKENS, *records]), starts)

    @classmethod
    def none(cls, count: int) -> Self:
        """Return `count` records without pieces."""
        return cls(NO_TOKENS, np.zeros(count + 1, np.uint32))

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        sizes = np.concatenate([np.diff(part.starts) for part in parts])
        starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.uint32)
        return cls(np.concatenate([part.rows for part in parts]), starts)

    @property
    def nbytes(self) -> int:
        return self.rows.nbytes + self.starts.nbytes

    def of_record(self, place: int) -> np.ndarray:
        rows: np.ndarray = self.rows[self.starts[place] : self.starts[place + 1]]
        return rows

    def at(self, places: Sequence[int] | np.ndarray) -> Self:
        """Return the pieces of these records."""
        chosen = np.asarray(places, np.intp)
        rows, starts = ranges(self.starts, chosen)
        return type(self)(self.rows[rows], starts)

    def best(self, questions: np.ndarray) -> np.ndarray:
        """Return for each piece of the question its highest cosine with a piece of each record.

        The result is (records, pieces of the question); 0 for a record without pieces.
        """
        cosines = np.zeros((len(self.starts) - 1, len(questions)), np.float32)
        filled = np.flatnonzero(np.diff(self.starts))
        if len(filled) and len(questions):
            scores = products(self.rows, np.ascontiguousarray(questions.T, np.float32))
            first = self.starts[:-1][filled].astype(np.intp)
            cosines[filled] = np.maximum.reduceat(scores, first, axis=0) / 127**2
        return cosines


def ranges(starts: np.ndarray, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Concatenate the ranges from `starts[i]` to `starts[i + 1]` for each `i` of `chosen`.

    Return the numbers of all these ranges, and the first index of each range in the result,
    followed by the total.
    """
    first = starts[chosen].astype(np.intp)
    begins = np.zeros(len(chosen) + 1, np.uint32)
    sizes = starts[chosen + 1] - first
    np.cumsum(sizes, out=begins[1:])
    return np.arange(begins[-1]) + np.repeat(first - begins[:-1], sizes), begins


def products(rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Return the matrix product, computed in steps.

    OpenBLAS computes larger products on threads that wait for each other. That is a hundred times
    slower while other work is running.
    """
    products = np.empty((len(rows), columns.shape[1]), np.float32)
    step = max(1, _MOST_PRODUCTS // columns.size)
    for at in range(0, len(rows), step):
        some = rows[at : at + step].astype(np.float32, copy=False)
        np.matmul(some, columns, out=products[at : at + step])
    return products


_ALONG, _ACROSS = 0.6, 0.8  # the product 0.36 c + 0.64 is positive for every cosine c
_MARGIN = 3e-4
"""Upper bound of a cosine's error in single precision."""

_SMALL, _LARGE = np.dtype("<f4"), np.dtype("<f8")


def vector_of(value: object, what: str) -> np.ndarray:
    """Return a vector as float64, scaled by a power of two so that squares do not overflow.

    Raises:
        InvalidInput: The value is not a vector of finite numbers, or is all zeros.
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
        raise InvalidInput(f"{what} contains a number that is not finite.")
    if not largest:
        raise InvalidInput(f"{what} is all zeros, so it has no direction to compare.")
    scaled: np.ndarray = np.ldexp(exact, -np.frexp(largest)[1])
    return scaled


def lifted(vector: np.ndarray) -> np.ndarray:
    """Return a vector scaled to length 1, with one number appended.

    The dot product of two such vectors is positive, and rises with the cosine of the originals.
    """
    unit = vector / np.linalg.norm(vector)
    return np.append(_ALONG * unit, _ACROSS).astype(np.float32)


def most_unseen(score: float) -> float:
    """Return the highest cosine of two vectors whose `lifted` product is at most `score`."""
    return (score - _ACROSS**2) / _ALONG**2 + _MARGIN


def cosines(rows: np.ndarray, vector: np.ndarray) -> list[float]:
    """Return the cosine of each row with a vector.

    Even the last digits of a cosine do not depend on the other rows.
    """
    products = (rows * vector).sum(axis=1)
    # the root of the product is exact for a vector with itself
    lengths = np.sqrt((rows * rows).sum(axis=1) * (vector * vector).sum())
    result: list[float] = np.clip(products / lengths, -1.0, 1.0).tolist()
    return result


def packed(vector: np.ndarray) -> str:
    """Encode a vector as text without loss, in single precision if that is exact."""
    small = vector.astype(_SMALL)
    exact = small if (small == vector).all() else vector.astype(_LARGE)
    return b64encode(exact.tobytes()).decode("ascii")


def unpacked(text: str, dimension: int) -> np.ndarray:
    data = b64decode(text)
    kind = _SMALL if len(data) == dimension * _SMALL.itemsize else _LARGE
    return np.frombuffer(data, kind).astype(np.float64)
