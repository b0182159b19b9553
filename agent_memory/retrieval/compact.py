"""Vectors in eight bits a number, with what each row is multiplied by.

What is rounded so once stays as it is: rounding it again gives the same, after a detour through
half precision too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np

LEAST_LENGTH = 64
"""Shorter vectors are kept as they are: there is little to save."""

_MOST = 127
_ROWS = 512  # converted at a time: they stay in the processor's cache
_LEAST = np.finfo(np.float16).tiny  # the least that half precision keeps all digits of


class Vectors(NamedTuple):
    """Rows of numbers. A value.

    Attributes:
        rows: (n, length) float32, or int8; no columns where all are zeros.
        scales: (n,) float32: what each row is to be multiplied by; None for float32.
        length: Of a row.
    """

    rows: np.ndarray
    scales: np.ndarray | None
    length: int

    @classmethod
    def of(cls, matrix: np.ndarray, compact: bool) -> Self:
        """Those of a matrix, float32.

        Args:
            matrix: (n, length).
            compact: Whether to round them, where that can be done.
        """
        count, length = matrix.shape
        if not matrix.any():
            return cls(np.empty((count, 0), np.float32), None, length)
        if compact and length >= LEAST_LENGTH:
            scales, fit = _scales(matrix)
            if fit.all():
                by = np.where(scales > 0, scales, 1)[:, None]
                rows = np.clip(np.rint(matrix / by), -_MOST, _MOST).astype(np.int8)
                return cls(rows, scales, length)
        return cls(np.ascontiguousarray(matrix, np.float32), None, length)

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Several, one after the other."""
        full = [part for part in parts if part.rows.shape[1]]
        length = max(part.length for part in parts)
        if not full:
            return cls(np.concatenate([part.rows for part in parts]), None, length)
        if any(part.scales is None for part in full):
            return cls(np.concatenate([part.floats() for part in parts]), None, length)
        given = [part if part.scales is not None else part._zeros() for part in parts]
        scales = np.concatenate([part.scales for part in given if part.scales is not None])
        return cls(np.concatenate([part.rows for part in given]), scales, length)

    def _zeros(self) -> Self:
        count = len(self.rows)
        rows, scales = np.zeros((count, self.length), np.int8), np.zeros(count, np.float32)
        return self._replace(rows=rows, scales=scales)

    @property
    def nbytes(self) -> int:
        """How much memory they take."""
        return self.rows.nbytes + (0 if self.scales is None else self.scales.nbytes)

    def filled(self) -> np.ndarray:
        """(n,) whether each row has any number but 0."""
        if not self.rows.shape[1]:
            return np.zeros(len(self.rows), np.bool_)
        return np.asarray(self.rows.any(axis=1) if self.scales is None else self.scales > 0)

    def only(self, keep: np.ndarray) -> Self:
        """Some of the rows."""
        scales = None if self.scales is None else self.scales[keep]
        return self._replace(rows=self.rows[keep], scales=scales)

    def floats(self) -> np.ndarray:
        """(n, length) float32."""
        if not self.rows.shape[1]:
            return np.zeros((len(self.rows), self.length), np.float32)
        return self.rows if self.scales is None else self.rows * self.scales[:, None]

    def products(self, vector: np.ndarray) -> np.ndarray:
        """(n,) what each row and a vector of float32 make."""
        count = len(self.rows)
        if not self.rows.shape[1]:
            return np.zeros(count, np.float32)
        if self.scales is None:
            return np.asarray(self.rows @ vector)
        found = np.empty(count, np.float32)
        converted = np.empty((min(_ROWS, count), self.length), np.float32)
        for at in range(0, count, _ROWS):
            some = converted[: min(_ROWS, count - at)]
            some[:] = self.rows[at : at + _ROWS]
            np.dot(some, vector, out=found[at : at + _ROWS])
        found *= self.scales
        return found


def rounded_rows(matrix: np.ndarray, which: np.ndarray) -> np.ndarray:
    """A matrix with some of its rows rounded, those of them that can be."""
    if matrix.shape[1] < LEAST_LENGTH:
        return matrix
    some = which & _scales(matrix)[1]
    found = matrix.copy()
    found[some] = Vectors.of(matrix[some], True).floats()
    return found


def _scales(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(n,) what to multiply whole numbers by; and which rows are neither too large nor too small.

    The largest number of a row is taken in half precision: so it is the same for what was rounded
    already.
    """
    largest = np.abs(matrix).max(axis=1, initial=0.0)
    with np.errstate(over="ignore"):
        halved = largest.astype(np.float16)
    fit = np.isfinite(halved) & ((halved >= _LEAST) | (largest == 0))
    return halved.astype(np.float32) / np.float32(_MOST), fit
