"""An inverted index: in which records a word is, and what it is worth there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np

from agent_memory.retrieval.terms import Terms


class Postings(NamedTuple):
    """The words of some records, numbered from 0 on. A value.

    Attributes:
        terms: The words' numbers, uint32, sorted, each once.
        starts: Where each word's postings begin, and the end of the last, uint32.
        places: In which record each is, uint16, in order for each word.
        weights: What the word is worth there, float16, as stores keep it.
    """

    terms: np.ndarray
    starts: np.ndarray
    places: np.ndarray
    weights: np.ndarray

    @classmethod
    def of(cls, texts: Sequence[Terms]) -> Self:
        """Those of texts."""
        sizes = [len(text.ids) for text in texts]
        places = np.repeat(np.arange(len(texts), dtype=np.uint16), sizes)
        if not len(places):
            return cls._sorted(_NONE, places, np.empty(0, np.float16))
        ids = np.concatenate([text.ids for text in texts])
        return cls._sorted(ids, places, np.concatenate([text.weights for text in texts]))

    @classmethod
    def joined(cls, parts: Sequence[tuple[Self, int]]) -> Self:
        """Those of several, one after the other.

        Args:
            parts: Each with the number of its records.
        """
        first, moved = 0, []
        for part, count in parts:
            moved.append(part.places + np.uint16(first))
            first += count
        return cls._sorted(
            np.concatenate([part.ids for part, _ in parts]),
            np.concatenate(moved),
            np.concatenate([part.weights for part, _ in parts]),
        )

    @classmethod
    def _sorted(cls, ids: np.ndarray, places: np.ndarray, weights: np.ndarray) -> Self:
        order = np.argsort(ids, kind="stable")
        ids = ids[order]
        starts = np.flatnonzero(np.diff(ids, prepend=ids[:1] + 1))
        return cls(
            ids[starts].astype(np.uint32, copy=False),
            np.append(starts, len(ids)).astype(np.uint32),
            places[order],
            weights[order].astype(np.float16, copy=False),
        )

    @property
    def nbytes(self) -> int:
        """How much memory it takes."""
        return sum(column.nbytes for column in self)

    @property
    def ids(self) -> np.ndarray:
        """The word of each posting."""
        return np.repeat(self.terms, np.diff(self.starts))

    def only(self, keep: np.ndarray) -> Self:
        """Those of some of the records, numbered anew.

        Args:
            keep: For each record, whether it is one of them.
        """
        after = (np.cumsum(keep) - 1).astype(np.uint16)
        there = keep[self.places]
        return self._sorted(self.ids[there], after[self.places[there]], self.weights[there])

    def texts(self, count: int) -> list[Terms]:
        """The words of each record, sorted by their numbers.

        Args:
            count: How many records there are.
        """
        order = np.argsort(self.places, kind="stable")
        ids, weights = self.ids[order], self.weights[order].astype(np.float32)
        ends = np.cumsum(np.bincount(self.places, minlength=count)).tolist()
        return [
            Terms(ids[start:end], weights[start:end])
            for start, end in zip([0, *ends], ends, strict=False)
        ]

    def found(self, asked: np.ndarray) -> Found:
        """What there is of some words.

        Args:
            asked: The words' numbers, uint32.
        """
        at = np.searchsorted(self.terms, asked)
        at[at == len(self.terms)] = 0
        which = np.flatnonzero(self.terms[at] == asked) if len(self.terms) else at[:0]
        starts = self.starts[at[which]].astype(np.intp)
        return Found(self, which, starts, self.starts[at[which] + 1] - starts)


class Found(NamedTuple):
    """What postings have of some words that were asked for.

    Attributes:
        postings: The postings.
        which: Which of those asked for are there, (n,), by their places among them.
        starts: Where the postings of each begin.
        sizes: In how many records each is.
    """

    postings: Postings
    which: np.ndarray
    starts: np.ndarray
    sizes: np.ndarray

    def raise_to(self, weights: np.ndarray, columns: np.ndarray) -> None:
        """Raise what records have in a column to the weights of the words that belong to it.

        Args:
            weights: (records, columns) float32.
            columns: For each word that was asked for, its column.
        """
        ends = np.cumsum(self.sizes)
        at = np.repeat(self.starts - ends + self.sizes, self.sizes)
        at += np.arange(len(at))
        place = self.postings.places[at], np.repeat(columns[self.which], self.sizes)
        np.maximum.at(weights, place, self.postings.weights[at].astype(np.float32))


_NONE = np.empty(0, np.uint32)
