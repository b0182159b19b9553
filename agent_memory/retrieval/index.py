"""In-memory exact search over the records of one owner."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from functools import partial
from itertools import accumulate
from typing import Self

import numpy as np

from agent_memory.core.lazy import made_once
from agent_memory.core.records import Record
from agent_memory.retrieval.features import PLACE, Features
from agent_memory.retrieval.query import Query
from agent_memory.retrieval.score import (
    REACH,
    Candidates,
    Ranked,
    in_order,
    informativeness,
    nearest,
    ranked,
)
from agent_memory.retrieval.segments import MOST_ROWS, Segment, in_segments
from agent_memory.retrieval.vectors import Tokens

ANY = -1
"""Dimension of an index without vectors. Queries of any dimension can search it."""

DEPTH = 20
"""Minimum number of candidates by meaning, and of candidates by words, that are scored in detail.
"""

_DIGITS = 6
_MERGED = 8  # a segment that is 8 times larger than the next segment is not merged with it


class SegmentIndex:
    """An index over segments. It is immutable, so a search sees one state.

    Args:
        dimension: Numbers in a vector.
        segments: Segments without records in common.

    Attributes:
        records: A cache of found records. The caller fills it and limits its size.
    """

    def __init__(self, dimension: int, segments: Sequence[Segment] = ()) -> None:
        self.dimension = dimension
        self.segments = tuple(segments)
        self.records: dict[str, Record] = {}
        self._firsts = [0, *accumulate(segment.records for segment in segments)]

    def __len__(self) -> int:
        return self._firsts[-1]

    @property
    def nbytes(self) -> int:
        return sum(segment.nbytes for segment in self.segments)

    @made_once
    def filled(self) -> np.ndarray:
        """For each record, whether it has a vector."""
        some = [segment.meaning.filled() for segment in self.segments]
        return np.concatenate([np.zeros(0, np.bool_), *some])

    @made_once
    def _places(self) -> np.ndarray:
        return np.concatenate([np.zeros(0, PLACE), *(segment.places for segment in self.segments)])

    @made_once
    def _ordered(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return three (n,) arrays for the order of all records by session, seq and passage.

        The first lists the numbers of the records in this order. The second has the position of
        each record. The third has the number of the session at each position. A record without
        neighbours has a session number of its own.
        """
        order = in_order(self._places)
        places = self._places[order]
        begins = np.ones(len(order), np.bool_)
        begins[1:] = (places["session"][1:] != places["session"][:-1]) | (places["seq"][:-1] == 0)
        at = np.empty_like(order)
        at[order] = np.arange(len(order))
        return order, at, np.cumsum(begins)

    def with_neighbours(self, chosen: np.ndarray) -> np.ndarray:
        """Return the chosen records and their neighbours up to `REACH`, in order."""
        order, at, sessions = self._ordered
        rows = at[chosen]
        near = (rows[:, None] + np.arange(-REACH, REACH + 1)).clip(0, max(0, len(order) - 1))
        included = np.zeros(len(order), np.bool_)
        included[near[sessions[near] == sessions[rows, None]]] = True
        records: np.ndarray = order[included]
        return records

    def extended(self, ids: Sequence[str], features: Features, *, compact: bool = False) -> Self:
        """Return an index with additional records. For `compact` see `Segment.of`."""
        segments = [*self.segments]
        for segment in in_segments(ids, features, compact=compact):
            segments.append(segment)
            while len(segments) > 1 and _are_merged(*segments[-2:]):
                segments[-2:] = [Segment.joined(segments[-2:])]
        return type(self)(self.dimension, segments)

    def name(self, place: int) -> str:
        segment, row = self._found_in(place)
        return segment.names[row]

    def vector(self, place: int) -> np.ndarray:
        """Return the (dimension,) vector of a record; zeros if it has none."""
        segment, row = self._found_in(place)
        vector: np.ndarray = segment.meaning.only(np.array([row])).floats()[0]
        return vector

    def _found_in(self, place: int) -> tuple[Segment, int]:
        at = bisect_right(self._firsts, place) - 1
        return self.segments[at], place - self._firsts[at]

    def search(self, query: Query, limit: int) -> Ranked:
        """Return the best records of this index and of the query's pending index, best first."""
        pairs: list[tuple[SegmentIndex, Query]] = [(self, query)]
        if query.pending is not None:
            pairs.append((query.pending.index, query.pending.query))
        depth = max(DEPTH, limit)
        if query.is_direction:
            return nearest([index._nearest_to(each.meaning, depth) for index, each in pairs], limit)
        return ranked([index.candidates(encoded, depth) for index, encoded in pairs], query, limit)

    def _nearest_to(
        self, meaning: np.ndarray, depth: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return ids, vectors and cosines of the records nearest to a direction, unordered."""
        cosines = self._cosines(meaning)
        places = _best(np.where(self.filled, cosines, -np.inf), depth, above=-np.inf)
        return *self._records(places), cosines[places]

    def _records(self, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the ids of records, and functions that return their vectors."""
        numbers = places.tolist()
        vectors = [partial(self.vector, number) for number in numbers]
        return np.array([*map(self.name, numbers)], object), np.array(vectors, object)

    def candidates(self, query: Query, depth: int) -> Candidates:
        """Return the nearest records by meaning, by words and in the period, with their neighbours.

        Args:
            depth: Number of records of each of these three kinds. Ties go to the first record.
        """
        every = self._weights([*query.words, query.speakers])
        meant, weights = every[-1] > 0, every[:-1]
        holding = np.count_nonzero(weights, axis=1)
        cosines = self._cosines(query.meaning)
        words = informativeness(len(self), holding) @ weights
        first = _best(words, depth, above=0.0)
        if len(query.meaning):
            filled = np.where(self.filled, cosines, -np.inf)
            first = np.concatenate([first, _best(filled, depth, above=-np.inf)])
        if query.period is not None:
            days, period = self._places["day"], query.period
            then = (days >= period.first.toordinal()) & (days <= period.last.toordinal())
            then = np.where(then, cosines + words, -np.inf)
            first = np.concatenate([first, _best(then, depth, above=-np.inf)])
        if query.alone:
            order, at, _ = self._ordered
            places = order[np.sort(at[np.unique(first)])]
        else:
            places = self.with_neighbours(first)
        names, vectors = self._records(places)
        return Candidates(
            names=names,
            vectors=vectors,
            places=self._places[places],
            cosines=cosines[places],
            filled=self.filled[places] if len(query.meaning) else np.zeros(len(places), np.bool_),
            best=self._best_pieces(places, query.tokens),
            weights=weights[:, places].T,
            meant=meant[places],
            total=len(self),
            holding=holding,
        )

    def _weights(self, words: Sequence[Sequence[int]]) -> np.ndarray:
        """Return for each word and record the highest weight of the word's forms, (words, n)."""
        weights = np.zeros((len(words), len(self)), np.float32)
        terms = np.array([term for word in words for term in word], np.uint32)
        owners = np.repeat(np.arange(len(words)), [len(word) for word in words])
        for first, segment in zip(self._firsts, self.segments, strict=False):
            segment.words.raise_to(weights[:, first : first + segment.records], terms, owners)
        return weights

    def _cosines(self, meaning: np.ndarray) -> np.ndarray:
        cosines = np.zeros(len(self), np.float32)
        if not len(meaning):
            return cosines
        vector = np.ascontiguousarray(meaning, np.float32)
        # BLAS reads past the array, so it may set floating-point flags for finite numbers
        with np.errstate(invalid="ignore", over="ignore"):
            for first, segment in zip(self._firsts, self.segments, strict=False):
                cosines[first : first + segment.records] = segment.meaning.products(vector)
        # the last bits of a sum depend on the row's place; rounding gives equal rows equal cosines
        return np.round(cosines, _DIGITS, out=cosines)

    def _best_pieces(self, places: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        if not len(tokens):
            return np.zeros((len(places), 0), np.float32)
        at = np.searchsorted(self._firsts, places, side="right") - 1
        order = np.argsort(at, kind="stable")
        pieces = [
            self.segments[number].tokens.at(places[at == number] - self._firsts[number])
            for number in np.unique(at).tolist()
        ]
        best = np.empty((len(places), len(tokens)), np.float32)
        if pieces:
            best[order] = Tokens.joined(pieces).best(tokens)
        return best


def _are_merged(left: Segment, right: Segment) -> bool:
    """Return whether to merge two neighbouring segments. A much larger segment is not copied."""
    return left.records < _MERGED * right.records and left.records + right.records <= MOST_ROWS


def _best(scores: np.ndarray, depth: int, above: float) -> np.ndarray:
    """Return the indexes of the best scores above a limit, unordered. Ties go to the first."""
    places = np.flatnonzero(scores > above)
    if depth < len(places):
        there = scores[places]
        bar = np.partition(there, len(there) - depth)[len(there) - depth]
        sure = places[there > bar]
        places = np.concatenate([sure, places[there == bar][: depth - len(sure)]])
    return places
