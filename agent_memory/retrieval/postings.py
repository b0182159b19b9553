"""An inverted index in memory: in which records a word is, and what it is worth there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Self

import numpy as np

from agent_memory.retrieval.terms import Terms, rarity


class _Segment(NamedTuple):
    """The postings of some consecutive records, by term."""

    terms: np.ndarray  # sorted, each once
    starts: np.ndarray  # where each term's postings begin, and the end of the last
    places: np.ndarray
    weights: np.ndarray


class Postings:
    """The words of records that are numbered from 0 on. A value: `extended` gives another.

    Postings are kept in segments of growing size, as log-structured stores have them: a record that
    is added is sorted into the whole only now and then.
    """

    def __init__(self, segments: tuple[_Segment, ...] = ()) -> None:
        self._segments = segments

    @property
    def nbytes(self) -> int:
        """How much memory it takes."""
        return sum(column.nbytes for segment in self._segments for column in segment)

    def extended(self, first: int, texts: Sequence[Terms]) -> Self:
        """With more records.

        Args:
            first: The place of the first of them.
            texts: Their words.
        """
        sizes = [len(text.ids) for text in texts]
        if not sum(sizes):
            return self
        places = np.repeat(np.arange(first, first + len(texts), dtype=np.uint32), sizes)
        ids = np.concatenate([text.ids for text in texts])
        weights = np.concatenate([text.weights for text in texts])
        segments = [*self._segments, _sorted(ids, places, weights)]
        while len(segments) > 1 and len(segments[-2].places) < 2 * len(segments[-1].places):
            segments[-2:] = [_merged(*segments[-2:])]
        return type(self)(tuple(segments))

    def holding(self, asked: Sequence[int]) -> np.ndarray:
        """How many records have each of these words, given by their numbers."""
        holding = np.zeros(len(asked))
        for which, segment, part in self._found(asked):
            holding[which] += len(segment.places[part])
        return holding

    def scores(
        self,
        asked: Sequence[int],
        size: int,
        count: int | None = None,
        holding: np.ndarray | None = None,
    ) -> np.ndarray:
        """For each record, what a question's words are worth in it; 0 where it has none.

        Args:
            asked: The words' numbers, each once.
            size: How many records there are.
            count: Among how many a word is rare; None: among these.
            holding: How many of those have each word; None: counted here.
        """
        scores = np.zeros(size, np.float32)
        if holding is None:
            holding = self.holding(asked)
        rare = rarity(size if count is None else count, holding).astype(np.float32)
        for which, segment, part in self._found(asked):
            scores[segment.places[part]] += rare[which] * segment.weights[part]
        return scores

    def _found(self, asked: Sequence[int]) -> Iterator[tuple[int, _Segment, slice]]:
        """For each word, in each segment that has it, the part of its postings."""
        terms = np.array(asked, np.uint32)
        for segment in self._segments if len(terms) else ():
            at = np.searchsorted(segment.terms, terms)
            at[at == len(segment.terms)] = 0
            for which in np.flatnonzero(segment.terms[at] == terms).tolist():
                yield which, segment, slice(*segment.starts[at[which] : at[which] + 2].tolist())


def _sorted(ids: np.ndarray, places: np.ndarray, weights: np.ndarray) -> _Segment:
    order = np.argsort(ids, kind="stable")
    terms, starts = np.unique(ids[order], return_index=True)
    return _Segment(terms, np.append(starts, len(ids)), places[order], weights[order])


def _merged(one: _Segment, other: _Segment) -> _Segment:
    ids = [np.repeat(part.terms, np.diff(part.starts)) for part in (one, other)]
    places = np.concatenate([one.places, other.places])
    return _sorted(np.concatenate(ids), places, np.concatenate([one.weights, other.weights]))
