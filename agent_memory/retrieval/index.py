"""The records of one owner, searched exactly, in memory."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate
from typing import Self

import numpy as np

from agent_memory.core.records import Record
from agent_memory.retrieval.candidates import REACH, Candidates, Named, in_order
from agent_memory.retrieval.features import PLACE, Features
from agent_memory.retrieval.query import Query
from agent_memory.retrieval.score import Ranked, informativeness, ranked
from agent_memory.retrieval.segments import MOST_ROWS, Segment, in_segments
from agent_memory.retrieval.tokens import Tokens

ANY = -1
"""The dimension of an index of which no vector is known: whatever a question has."""

DEPTH = 20
"""Records of each of the two first looks, by meaning and by words, that are compared closely."""

_DIGITS = 6
_MERGED = 8  # times as large as the next one a segment stays by itself


class SegmentIndex:
    """Records by their features, in segments. A value: `extended` gives another, which shares what
    it can, so that a search sees one state of it.

    Args:
        dimension: Numbers in a vector of meaning.
        segments: Of records that are in one of them only.

    Attributes:
        dimension: As given.
        segments: As given.
        records: Records that were found before, for who searches to keep and to bound.
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
        """About how much memory it takes."""
        return sum(segment.nbytes for segment in self.segments)

    @cached_property
    def filled(self) -> np.ndarray:
        """(n,) whether each record has a vector."""
        some = [segment.meaning.filled() for segment in self.segments]
        return np.concatenate([np.zeros(0, np.bool_), *some])

    @cached_property
    def _places(self) -> np.ndarray:
        return np.concatenate([np.zeros(0, PLACE), *(one.places for one in self.segments)])

    @cached_property
    def _ordered(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(n,) the records in the order of their conversations, where in it each stands, and a
        number for each conversation, of its own for a record that stands alone."""
        order = in_order(self._places)
        places = self._places[order]
        begins = np.ones(len(order), np.bool_)
        begins[1:] = (places["session"][1:] != places["session"][:-1]) | (places["seq"][:-1] == 0)
        at = np.empty_like(order)
        at[order] = np.arange(len(order))
        return order, at, np.cumsum(begins)

    def with_neighbours(self, chosen: np.ndarray) -> np.ndarray:
        """Some records, by their places, and those at most `REACH` from them in their sessions, in
        the order of their conversations."""
        order, at, sessions = self._ordered
        rows = at[chosen]
        near = (rows[:, None] + np.arange(-REACH, REACH + 1)).clip(0, max(0, len(order) - 1))
        there = np.zeros(len(order), np.bool_)
        there[near[sessions[near] == sessions[rows, None]]] = True
        found: np.ndarray = order[there]
        return found

    def extended(self, ids: Sequence[str], features: Features, *, compact: bool = False) -> Self:
        """With more records, which it does not hold yet; `compact` as in `Segment.of`."""
        segments = [*self.segments]
        for segment in in_segments(ids, features, compact=compact):
            segments.append(segment)
            while len(segments) > 1 and _are_merged(*segments[-2:]):
                segments[-2:] = [Segment.joined(segments[-2:])]
        return type(self)(self.dimension, segments)

    def name(self, place: int) -> str:
        """The id of a record."""
        at = bisect_right(self._firsts, place) - 1
        return self.segments[at].names[place - self._firsts[at]]

    def search(self, query: Query, limit: int) -> Ranked:
        """The best records, best first, of this index and of what is pending.

        Args:
            query: What to look for.
            limit: So many at most.
        """
        found = [self.candidates(query, max(DEPTH, limit))]
        if query.pending is not None:
            pending = query.pending
            found.append(pending.index.candidates(pending.query, max(DEPTH, limit)))
        return ranked(found, query, limit)

    def candidates(self, query: Query, depth: int) -> Candidates:
        """The records that are nearest by meaning or share most words, and their neighbours.

        Args:
            query: What to look for.
            depth: So many by meaning and so many by words; of equals the first.
        """
        weights = self._weights([*query.words, query.speakers])
        meant, weights = weights[:, -1] > 0, weights[:, :-1]
        holding = (weights > 0).sum(axis=0)
        cosines = self._cosines(query.meaning)
        words = weights @ informativeness(len(self), holding)
        first = _best(words, depth, above=0.0)
        if len(query.meaning):
            filled = np.where(self.filled, cosines, -np.inf)
            first = np.concatenate([first, _best(filled, depth, above=-np.inf)])
        places = self.with_neighbours(first)
        return Candidates(
            names=Named(self.name, places),
            places=self._places[places],
            cosines=cosines[places],
            filled=self.filled[places] if len(query.meaning) else np.zeros(len(places), np.bool_),
            best=self._nearest(places, query.tokens),
            weights=weights[places],
            meant=meant[places],
            total=len(self),
            holding=holding,
        )

    def _weights(self, words: Sequence[Sequence[int]]) -> np.ndarray:
        """(n, words) what each word is worth in each record, by the number under which it is worth
        most."""
        found = np.zeros((len(self), len(words)), np.float32)
        numbers = np.array([number for word in words for number in word], np.uint32)
        owners = np.repeat(np.arange(len(words)), [len(word) for word in words])
        for first, segment in zip(self._firsts, self.segments, strict=False):
            segment.words.found(numbers).raise_to(found[first : first + segment.records], owners)
        return found

    def _cosines(self, meaning: np.ndarray) -> np.ndarray:
        found = np.zeros(len(self), np.float32)
        if not len(meaning):
            return found
        vector = np.ascontiguousarray(meaning, np.float32)
        # all numbers are finite; what BLAS reads beside them sets the processor's flags at times
        with np.errstate(invalid="ignore", over="ignore"):
            for first, segment in zip(self._firsts, self.segments, strict=False):
                found[first : first + segment.records] = segment.meaning.products(vector)
        # sums of equal rows differ in their last bits by place; rounding makes them equal
        return np.round(found, _DIGITS, out=found)

    def _nearest(self, places: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        """As `Tokens.best`, of some records."""
        if not len(tokens):
            return np.zeros((len(places), 0), np.float32)
        at = np.searchsorted(self._firsts, places, side="right") - 1
        order = np.argsort(at, kind="stable")
        pieces = [
            self.segments[number].tokens.at(places[at == number] - self._firsts[number])
            for number in np.unique(at).tolist()
        ]
        found = np.empty((len(places), len(tokens)), np.float32)
        if pieces:
            found[order] = Tokens.joined(pieces).best(tokens)
        return found


def _are_merged(one: Segment, other: Segment) -> bool:
    """Whether two neighbours become one: so a record is copied only now and then."""
    return one.records < _MERGED * other.records and one.records + other.records <= MOST_ROWS


def _best(scores: np.ndarray, depth: int, above: float) -> np.ndarray:
    """The places of the best scores, of equals the first, in no order."""
    places = np.flatnonzero(scores > above)
    if depth < len(places):
        there = scores[places]
        bar = np.partition(there, len(there) - depth)[len(there) - depth]
        sure = places[there > bar]
        places = np.concatenate([sure, places[there == bar][: depth - len(sure)]])
    return places
