"""An inverted index in memory: in which records a word is, and what it is worth there."""

from __future__ import annotations

from collections.abc import Sequence
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

    def scores(self, asked: Sequence[int], count: int) -> np.ndarray:
        """For each record, what a question's words are worth in it; 0 where it has none.

        Args:
            asked: The words' numbers, each once.
            count: How many records there are.
        """
        scores = np.zeros(count, np.float32)
        terms = np.array(asked, np.uint32)
        if not len(terms):
            return scores
        holding = np.zeros(len(terms))
        found: list[tuple[int, np.ndarray, np.ndarray]] = []
        for segment in self._segments:
            at = np.searchsorted(segment.terms, terms)
            at[at == len(segment.terms)] = 0
            for which in np.flatnonzero(segment.terms[at] == terms).tolist():
                part = slice(*segment.starts[at[which] : at[which] + 2].tolist())
                found.append((which, segment.places[part], segment.weights[part]))
                holding[which] += part.stop - part.start
        rare = rarity(count, holding).astype(np.float32)
        for which, places, weights in found:
            scores[places] += rare[which] * weights
        return scores


def _sorted(ids: np.ndarray, places: np.ndarray, weights: np.ndarray) -> _Segment:
    order = np.argsort(ids, kind="stable")
    terms, starts = np.unique(ids[order], return_index=True)
    return _Segment(terms, np.append(starts, len(ids)), places[order], weights[order])


def _merged(one: _Segment, other: _Segment) -> _Segment:
    ids = [np.repeat(part.terms, np.diff(part.starts)) for part in (one, other)]
    places = np.concatenate([one.places, other.places])
    return _sorted(np.concatenate(ids), places, np.concatenate([one.weights, other.weights]))
