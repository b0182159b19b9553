"""The word pieces of many records as one array."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np

from agent_memory.retrieval.encoding import NO_TOKENS


class Tokens(NamedTuple):
    """The vectors of word pieces, record after record. A value.

    Attributes:
        rows: (pieces, TOKEN) int8; see `Encoding.tokens`.
        starts: (records + 1,) where the pieces of each record begin, and the end of the last.
    """

    rows: np.ndarray
    starts: np.ndarray

    @classmethod
    def of(cls, records: Sequence[np.ndarray]) -> Self:
        """The pieces of each record, as one."""
        starts = np.zeros(len(records) + 1, np.uint32)
        np.cumsum([len(rows) for rows in records], out=starts[1:])
        return cls(np.concatenate([NO_TOKENS, *records]), starts)

    @classmethod
    def none(cls, count: int) -> Self:
        """Records without pieces."""
        return cls(NO_TOKENS, np.zeros(count + 1, np.uint32))

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Several, one after the other."""
        sizes = np.concatenate([np.diff(part.starts) for part in parts])
        starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.uint32)
        return cls(np.concatenate([part.rows for part in parts]), starts)

    @property
    def nbytes(self) -> int:
        """The memory that they take."""
        return self.rows.nbytes + self.starts.nbytes

    def of_record(self, place: int) -> np.ndarray:
        """The pieces of one record."""
        rows: np.ndarray = self.rows[self.starts[place] : self.starts[place + 1]]
        return rows

    def at(self, places: Sequence[int] | np.ndarray) -> Self:
        """The pieces of some records."""
        chosen = np.asarray(places, np.intp)
        sizes = np.diff(self.starts)[chosen].astype(np.intp)
        starts = np.zeros(len(chosen) + 1, np.uint32)
        np.cumsum(sizes, out=starts[1:])
        # of each piece, how far it moves: the pieces of a record follow each other
        moved = self.starts[chosen].astype(np.intp) - starts[:-1]
        rows = np.arange(starts[-1]) + np.repeat(moved, sizes)
        return type(self)(self.rows[rows], starts)

    def best(self, questions: np.ndarray) -> np.ndarray:
        """(records, pieces of the question) the best cosine of each record's pieces with each of
        the question's; 0 for a record without pieces.

        Args:
            questions: (pieces, TOKEN) int8.
        """
        found = np.zeros((len(self.starts) - 1, len(questions)), np.float32)
        filled = np.flatnonzero(np.diff(self.starts))
        if len(filled) and len(questions):
            products = self.rows.astype(np.float32) @ questions.astype(np.float32).T
            first = self.starts[:-1][filled].astype(np.intp)
            found[filled] = np.maximum.reduceat(products, first, axis=0) / 127**2
        return found
