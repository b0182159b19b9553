"""Search of one owner's observations, held in arrays, and the score of the results. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from functools import reduce
from math import inf
from typing import NamedTuple

import numpy as np

from agent_memory.core.records import Record
from agent_memory.ltm_blocks.spatial.observation import (
    Fading,
    Moment,
    Observation,
    Position,
    SpatialMatch,
    observation_of,
)


class Found(NamedTuple):
    """Search results, one row each."""

    records: list[Record]
    distances: np.ndarray | None
    confidences: np.ndarray
    ages: np.ndarray  # ages in seconds

    def rows(self, rows: Sequence[int] | np.ndarray) -> Found:
        apart = None if self.distances is None else self.distances[rows]
        records = [self.records[row] for row in rows]
        return Found(records, apart, self.confidences[rows], self.ages[rows])

    def cut(self, count: int, column: np.ndarray) -> Found:
        """Return the `count` rows with the lowest values of a column, unordered."""
        return self if len(self.ages) <= count else self.rows(self.first(count, column))

    def first(self, count: int, *columns: np.ndarray) -> list[int]:
        """Return the rows with the lowest values, lowest first; ties go to the newest."""
        rows = np.arange(len(self.ages))
        if count < len(rows):
            rows = np.flatnonzero(columns[0] <= _least(columns[0], count))
        values = [column[rows].tolist() for column in (*columns, self.ages)]
        ids = [self.records[row].id for row in rows]
        keys = list(zip(*values, ids, strict=True))
        return [int(rows[at]) for at in sorted(range(len(keys)), key=keys.__getitem__)[:count]]

    def ranked(self, count: int, relevance: np.ndarray | None = None) -> list[SpatialMatch]:
        """Return the best results. Ties go to the nearest, then to the newest."""
        scores = scored(self, relevance)
        apart = np.zeros(len(scores)) if self.distances is None else self.distances
        return [
            SpatialMatch(
                observation=observation_of(self.records[row]),
                distance=None if self.distances is None else float(apart[row]),
                confidence=float(self.confidences[row]),
                relevance=None if relevance is None else float(relevance[row]),
                score=float(scores[row]),
            )
            for row in self.first(count, -scores, apart)
        ]

    def joined(self, others: Found) -> Found:
        """Return these results and others, without duplicates. Both are for the same position."""
        assert self.distances is not None
        ids = {item.id for item in self.records}
        added = others.rows([row for row, item in enumerate(others.records) if item.id not in ids])
        assert added.distances is not None
        return Found(
            [*self.records, *added.records],
            np.concatenate([self.distances, added.distances]),
            np.concatenate([self.confidences, added.confidences]),
            np.concatenate([self.ages, added.ages]),
        )


class PlaceIndex:
    """Observations as rows of a table. A search scans all of them. Immutable."""

    def __init__(self, dimensions: int, fading: Fading, records: Sequence[Record] = ()) -> None:
        self._dimensions = dimensions
        self._fading = fading
        self._records = list(records)
        self._rows = {item.id: row for row, item in enumerate(records)}
        self._table = np.array([_row(item) for item in records], float).reshape(-1, dimensions + 2)

    def __len__(self) -> int:
        return len(self._rows)

    def get(self, observation_id: str) -> Observation | None:
        row = self._rows.get(observation_id)
        return None if row is None else observation_of(self._records[row])

    def all(self) -> list[Observation]:
        return [
            observation_of(item)
            for item in sorted(self._records, key=lambda o: (o.created_at, o.id))
        ]

    def changed(self, changes: Mapping[str, Record | None]) -> PlaceIndex:
        """Return an index after changes. `changes` has records by id; None for a deleted record."""
        new = PlaceIndex(
            self._dimensions, self._fading, [item for item in changes.values() if item is not None]
        )
        index, table = copy(self), self._table
        index._records = list(self._records)
        if deleted := sorted(self._rows.keys() & changes.keys(), key=self._rows.__getitem__):
            rows = [self._rows[name] for name in deleted]
            for row in reversed(rows):
                del index._records[row]
            table = np.delete(table, rows, axis=0)
            index._rows = {item.id: row for row, item in enumerate(index._records)}
        first = len(index._records)
        index._records += new._records
        index._rows = index._rows | {name: first + row for name, row in new._rows.items()}
        index._table = np.concatenate([table, new._table])
        return index

    def nearest(self, position: Position, count: int, moment: Moment, radius: float = inf) -> Found:
        """Return the nearest observations of sufficient confidence, unordered.

        Ties go to the newest. The radius is inclusive.
        """
        rows = self._sure(np.arange(len(self)), moment)
        apart = distances(self._table[rows, :-2], position)
        if len(rows) > count:
            radius = min(radius, _least(apart, count))
        close = apart <= radius
        return self._results(rows[close], moment, position).cut(count, apart[close])

    def within(self, low: Position, high: Position, moment: Moment) -> Found:
        """Return the observations of sufficient confidence in a box and on its faces."""
        places = self._table[:, :-2]
        inside = ((places >= low) & (places <= high)).all(axis=1)
        return self._results(self._sure(np.flatnonzero(inside), moment), moment)

    def newest(self, count: int, moment: Moment, position: Position | None = None) -> Found:
        """Return the newest observations of sufficient confidence, unordered."""
        rows = self._sure(np.arange(len(self)), moment)
        ages = -self._table[rows, -2]
        if len(rows) > count:
            rows = rows[ages <= _least(ages, count)]
        results = self._results(rows, moment, position)
        return results.cut(count, results.ages)

    def _sure(self, rows: np.ndarray, moment: Moment) -> np.ndarray:
        """Return the rows of sufficient confidence. A search of the past ignores later rows."""
        sure = self._confidences(rows, moment) >= self._fading.least
        if moment.past:
            sure &= self._table[rows, -2] <= moment.seconds
        return rows[sure]

    def _confidences(self, rows: np.ndarray, moment: Moment) -> np.ndarray:
        ages = moment.seconds - self._table[rows, -2]
        return left(self._table[rows, -1], ages, self._fading.half_life)

    def _results(self, rows: np.ndarray, moment: Moment, position: Position | None = None) -> Found:
        apart = None if position is None else distances(self._table[rows, :-2], position)
        return Found(
            records=[self._records[row] for row in rows.tolist()],
            distances=apart,
            confidences=self._confidences(rows, moment),
            ages=moment.seconds - self._table[rows, -2],
        )


def _row(record: Record) -> tuple[float, ...]:
    fields = record.metadata
    return (*fields["position"], record.created_at.timestamp(), fields["confidence"])


def _least(values: np.ndarray, count: int) -> float:
    """Return the highest of the `count` lowest values."""
    return float(np.partition(values, count - 1)[count - 1])


def distances(positions: np.ndarray, position: Sequence[float]) -> np.ndarray:
    """Return the Euclidean distance of each position from `position`. Tiny distances stay exact."""
    return np.asarray(reduce(np.hypot, (positions - np.array(position)).T))


def left(confidences: np.ndarray, ages: np.ndarray, half_life: float | None) -> np.ndarray:
    """Return confidences after fading: 1/2 of the original after one half-life, 1/4 after two.

    Args:
        ages: In seconds; negative ages count as 0.
    """
    if half_life is None:
        return confidences
    return np.asarray(confidences * 0.5 ** (np.maximum(ages, 0) / half_life))


def proximity(apart: np.ndarray) -> np.ndarray:
    """Return the proximity of distances: 1 at 0, 1/2 at the median, 1/3 at twice the median."""
    near = np.ones(len(apart))
    if len(apart):
        middle = np.sort(apart)[(len(apart) - 1) // 2]
        np.divide(middle, middle + apart, out=near, where=apart > 0)
    return near


def scored(results: Found, relevance: np.ndarray | None = None) -> np.ndarray:
    """Return scores from 0 to 1: proximity x confidence, or the mean of this and the relevance."""
    near = 1.0 if results.distances is None else proximity(results.distances)
    sure = near * results.confidences
    return np.asarray(sure if relevance is None else (sure + relevance) / 2)
