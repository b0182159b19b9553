"""The records of one owner, searched exactly, in memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Self

import numpy as np

from agent_memory.core.records import Record
from agent_memory.retrieval.beside import search_both
from agent_memory.retrieval.features import Features, Query
from agent_memory.retrieval.postings import Postings
from agent_memory.retrieval.views import VIEWS

_DIGITS = 6


class Candidates(NamedTuple):
    """What some views found.

    Attributes:
        ids: Of the records.
        scores: (n, views) float32: what each view gives each, not only those that it found.
    """

    ids: list[str]
    scores: np.ndarray


class _Column:
    """Rows that grow at the end. Readers hold on to how many they know."""

    def __init__(self, width: int) -> None:
        self.rows = np.empty((0, width), np.float32)
        self.used = 0

    def extend(self, since: int, rows: np.ndarray) -> _Column:
        """Write rows behind the first `since`; a new column where those behind are taken."""
        end = since + len(rows)
        column = self
        if since != self.used or end > len(self.rows):
            column = _Column(self.rows.shape[1])
            column.rows = np.empty((max(end, 2 * since), self.rows.shape[1]), np.float32)
            column.rows[:since] = self.rows[:since]
        column.rows[since:end] = rows
        column.used = end
        return column


class TraitIndex:
    """Records by their features. A value: `extended` gives another, which shares what it can.

    So whoever searches one sees one state of it, whatever is added meanwhile.

    Args:
        dimension: Numbers in a vector of meaning.

    Attributes:
        records: Of those that were found before, for who searches to keep and to bound.
    """

    def __init__(self, dimension: int) -> None:
        self.dimension = dimension
        self._ids: list[str] = []
        self._places: dict[str, int] = {}
        self._count = 0
        self._meaning = _Column(dimension)
        self._meaning_around = _Column(dimension)
        self.records: dict[str, Record] = {}
        self._words = Postings()
        self._words_around = Postings()

    def __len__(self) -> int:
        return self._count

    @property
    def nbytes(self) -> int:
        """About how much memory it takes."""
        postings = sum(part.nbytes for part in (self._words, self._words_around))
        return postings + self._count * (2 * 4 * self.dimension + 200)

    def holds(self, ids: Iterable[str]) -> bool:
        """Whether it has one of these records."""
        return any(self._places.get(name, self._count) < self._count for name in ids)

    def lacks(self, ids: Sequence[str]) -> list[int]:
        """The places among these ids of those that it has no record of."""
        places, count = self._places, self._count
        return [at for at, name in enumerate(ids) if places.get(name, count) >= count]

    def extended(self, ids: Sequence[str], features: Features) -> Self:
        """With more records, which it does not hold yet; no two calls on one index at once."""
        other = type(self)(self.dimension)
        other.records = self.records
        fresh = len(self._ids) == self._count
        other._ids = self._ids if fresh else self._ids[: self._count]
        other._places = self._places if fresh else {name: at for at, name in enumerate(other._ids)}
        first = self._count
        other._ids += ids
        other._places.update(zip(ids, range(first, first + len(ids)), strict=True))
        other._count = first + len(ids)
        other._meaning = self._meaning.extend(first, features.meaning)
        other._meaning_around = self._meaning_around.extend(first, features.meaning_around)
        other._words = self._words.extended(first, features.words)
        other._words_around = self._words_around.extended(first, features.words_around)
        return other

    def search(self, query: Query, depth: int) -> Candidates:
        """The records that any view finds among its best.

        Args:
            query: What to look for.
            depth: So many records of each view, those that it gives more than 0; of equals those
                with the lowest ids.
        """
        if query.beside is not None:
            return search_both(self, query.meaning, query.words, query.beside, depth)
        return self.best(self.ids, self.scores(query.meaning, query.words), depth)

    @property
    def ids(self) -> list[str]:
        """Of the records, in order."""
        return self._ids[: self._count]

    def holding(self, words: Sequence[int]) -> list[np.ndarray]:
        """For each view of words, how many records have each of these, given by their numbers."""
        return [some.holding(words) for some in (self._words, self._words_around)]

    def scores(
        self,
        meaning: np.ndarray,
        words: Sequence[int],
        count: int | None = None,
        holding: Sequence[np.ndarray | None] = (None, None),
    ) -> np.ndarray:
        """(n, views) what each view gives each record.

        Args:
            meaning: The question's vector.
            words: The numbers of its words.
            count: As for `Postings.scores`.
            holding: For each view of words, as for `Postings.scores`.
        """
        if not self._count:
            return np.zeros((0, len(VIEWS)), np.float32)
        postings = (self._words, self._words_around)
        by_words = [
            some.scores(words, self._count, count, held)
            for some, held in zip(postings, holding, strict=True)
        ]
        return np.stack([*by_words, *self._by_meaning(meaning)], axis=1)

    @staticmethod
    def best(ids: Sequence[str], scores: np.ndarray, depth: int) -> Candidates:
        """The records that any view has among its best; see `search`."""
        found: set[int] = set()
        for view in range(len(VIEWS)):
            found.update(_best(ids, scores[:, view], depth))
        places = sorted(found)
        return Candidates([ids[place] for place in places], scores[places])

    def _by_meaning(self, meaning: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if not len(meaning):
            nothing = np.zeros(self._count, np.float32)
            return nothing, nothing
        columns = (self._meaning, self._meaning_around)
        # all numbers are finite; what BLAS reads beside them sets the processor's flags at times
        with np.errstate(invalid="ignore", over="ignore"):
            products = [column.rows[: self._count] @ meaning for column in columns]
        # sums of equal rows differ in their last bits by place; rounding makes them equal
        own, around = (np.round(product, _DIGITS) for product in products)
        return own, around


def _best(ids: Sequence[str], scores: np.ndarray, depth: int) -> list[int]:
    places = np.flatnonzero(scores > 0)
    if 0 < depth < len(places):
        there = scores[places]
        bar = np.partition(there, len(there) - depth)[len(there) - depth]
        places = places[there >= bar]
    best = sorted(places.tolist(), key=lambda place: (-scores[place], ids[place]))
    return best[:depth]
