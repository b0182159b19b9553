"""The records of one owner, searched exactly, in memory."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Sequence
from itertools import accumulate
from typing import NamedTuple, Self

import numpy as np

from agent_memory.core.records import Record
from agent_memory.retrieval.beside import search_both
from agent_memory.retrieval.features import Features, Query
from agent_memory.retrieval.postings import Found
from agent_memory.retrieval.segments import MOST_ROWS, Segment, in_segments
from agent_memory.retrieval.terms import rarity
from agent_memory.retrieval.views import VIEWS, WORDS

ANY = -1
"""The dimension of an index of which no vector is known: whatever a question has."""

_DIGITS = 6


class Candidates(NamedTuple):
    """What some views found.

    Attributes:
        ids: Of the records.
        scores: (n, views) float32: what each view gives each, not only those that it found.
    """

    ids: list[str]
    scores: np.ndarray


class SegmentIndex:
    """Records by their features, in segments. A value: `extended` gives another, which shares what
    it can.

    So whoever searches one sees one state of it, whatever is added meanwhile.

    Args:
        dimension: Numbers in a vector of meaning.
        segments: Of records that are in one of them only.

    Attributes:
        dimension: As given.
        segments: As given.
        records: Of those that were found before, for who searches to keep and to bound.
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

    def extended(self, ids: Sequence[str], features: Features, *, compact: bool = False) -> Self:
        """With more records, which it does not hold yet; `compact` as in `Segment.of`."""
        segments = [*self.segments]
        for segment in in_segments(ids, features, compact=compact):
            segments.append(segment)
            while len(segments) > 1 and _are_merged(*segments[-2:]):
                segments[-2:] = [Segment.joined(segments[-2:])]
        return type(self)(self.dimension, segments)

    def search(self, query: Query, depth: int) -> Candidates:
        """The records that any view finds among its best.

        Args:
            query: What to look for.
            depth: So many records of each view, those that it gives more than 0; of equals those
                with the lowest ids.
        """
        if query.beside is not None:
            return search_both(self, query.meaning, query.words, query.beside, depth)
        return self.best(self.name, self.scores(query.meaning, query.words), depth)

    def name(self, place: int) -> str:
        """The id of a record."""
        at = bisect_right(self._firsts, place) - 1
        return self.segments[at].names[place - self._firsts[at]]

    def held(self, ids: Collection[str]) -> set[str]:
        """Those of these records that it has."""
        wanted = set(ids)
        return {
            segment.names[place]
            for segment in (self.segments if wanted else ())
            for place in segment.names.places(wanted)
        }

    def holding(self, words: Sequence[int]) -> list[np.ndarray]:
        """For each view of words, how many records have each of these, given by their numbers."""
        return [_held(self._found(view, words), len(words)) for view in range(len(WORDS))]

    def scores(
        self,
        meaning: np.ndarray,
        words: Sequence[int],
        count: int | None = None,
        holding: Sequence[np.ndarray] | None = None,
    ) -> np.ndarray:
        """(n, views) what each view gives each record.

        Args:
            meaning: The question's vector.
            words: The numbers of its words, each once.
            count: Among how many records a word is rare; None: among these.
            holding: For each view of words, how many of those have each; None: counted here.
        """
        scores = np.zeros((len(VIEWS), len(self)), np.float32)
        among = len(self) if count is None else count
        for view in range(len(WORDS)):
            found = self._found(view, words)
            held = _held(found, len(words)) if holding is None else holding[view]
            rare = rarity(among, held).astype(np.float32)
            for segment, one in found:
                one.add_to(scores[view, segment], rare)
        if len(meaning):
            self._compare(np.ascontiguousarray(meaning, np.float32), scores[len(WORDS) :])
        return scores.T

    @staticmethod
    def best(name: Callable[[int], str], scores: np.ndarray, depth: int) -> Candidates:
        """The records that any view has among its best; see `search`.

        Args:
            name: The id of a record, by its place.
            scores: As `scores` gives them.
            depth: So many of each view.
        """
        found: set[int] = set()
        for view in range(len(VIEWS)):
            found.update(_best(name, scores[:, view], depth))
        places = sorted(found)
        return Candidates([name(place) for place in places], scores[places])

    def _found(self, view: int, words: Sequence[int]) -> list[tuple[slice, Found]]:
        """What each segment that has any of some words says of them, with its records."""
        if not len(words):
            return []
        asked = np.array(words, np.uint32)
        every = (
            (slice(first, first + one.records), (one.words, one.words_around)[view].found(asked))
            for first, one in zip(self._firsts, self.segments, strict=False)
        )
        return [(segment, found) for segment, found in every if len(found.which)]

    def _compare(self, meaning: np.ndarray, scores: np.ndarray) -> None:
        # all numbers are finite; what BLAS reads beside them sets the processor's flags at times
        with np.errstate(invalid="ignore", over="ignore"):
            for first, segment in zip(self._firsts, self.segments, strict=False):
                rows = slice(first, first + segment.records)
                scores[0, rows] = segment.meaning.products(meaning)
                scores[1, rows] = segment.meaning_around.products(meaning)
        # sums of equal rows differ in their last bits by place; rounding makes them equal
        np.round(scores, _DIGITS, out=scores)


def _held(found: Sequence[tuple[slice, Found]], words: int) -> np.ndarray:
    """How many records have each of some words."""
    held = np.zeros(words)
    for _, one in found:
        held[one.which] += one.sizes
    return held


def _are_merged(one: Segment, other: Segment) -> bool:
    """Whether two neighbours become one: so a record is copied only now and then."""
    return one.records < 2 * other.records and one.records + other.records <= MOST_ROWS


def _best(name: Callable[[int], str], scores: np.ndarray, depth: int) -> list[int]:
    """The places of the best, in no order; names are asked for only where some tie for the last."""
    places = np.flatnonzero(scores > 0)
    if not 0 < depth < len(places):
        return list(places.tolist()) if depth else []
    there = scores[places]
    bar = np.partition(there, len(there) - depth)[len(there) - depth]
    above: list[int] = places[there > bar].tolist()
    ties: list[int] = places[there == bar].tolist()
    missing = depth - len(above)
    return above + (ties if len(ties) == missing else sorted(ties, key=name)[:missing])
