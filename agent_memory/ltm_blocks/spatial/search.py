"""`PlaceIndex` searches one owner's observations, and `Found` ranks the results. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from math import inf
from typing import NamedTuple

import numpy as np

from agent_memory.core.records import Record
from agent_memory.ltm_blocks.spatial.handle import (
    Fading,
    Moment,
    Observation,
    Position,
    SpatialMatch,
    observation_of,
)


class Rows(NamedTuple):
    """The observations that a search compares, one row each."""

    records: Sequence[Record]  # all records of the owner
    places: np.ndarray  # the index of each row's record
    distances: np.ndarray | None
    confidences: np.ndarray
    ages: np.ndarray  # ages in seconds

    def record(self, row: int) -> Record:
        return self.records[int(self.places[row])]

    def texts(self) -> list[str]:
        return [self.record(row).text for row in range(len(self.places))]

    def rows(self, rows: Sequence[int] | np.ndarray) -> Rows:
        far = None if self.distances is None else self.distances[rows]
        return Rows(self.records, self.places[rows], far, self.confidences[rows], self.ages[rows])

    def cut(self, count: int, column: np.ndarray) -> Rows:
        """Return the `count` rows with the lowest values of a column, unordered."""
        return self if len(self.ages) <= count else self.rows(self.first(count, column))

    def first(self, count: int, *columns: np.ndarray) -> list[int]:
        """Return the rows with the lowest values, lowest first; ties go to the newest."""
        rows = np.arange(len(self.ages))
        if count < len(rows):
            highest = np.partition(columns[0], count - 1)[count - 1]
            rows = np.flatnonzero(columns[0] <= highest)
        values = [column[rows].tolist() for column in (*columns, self.ages)]
        ids = [self.record(row).id for row in rows.tolist()]
        keys = list(zip(*values, ids, strict=True))
        return [int(rows[at]) for at in sorted(range(len(keys)), key=keys.__getitem__)[:count]]

    def ranked(self, count: int, relevance: np.ndarray | None = None) -> list[SpatialMatch]:
        """Return the best results. Ties go to the nearest, then to the newest."""
        scores = scored(self, relevance)
        distance = np.zeros(len(scores)) if self.distances is None else self.distances
        return [
            SpatialMatch(
                observation=observation_of(self.record(row)),
                distance=None if self.distances is None else float(distance[row]),
                confidence=float(self.confidences[row]),
                relevance=None if relevance is None else float(relevance[row]),
                score=float(scores[row]),
            )
            for row in self.first(count, -scores, distance)
        ]


class PlaceIndex:
    """Observations as rows of a table. A search scans all of them. Immutable."""

    def __init__(self, dimensions: int, fading: Fading, records: Sequence[Record] = ()) -> None:
        self._dimensions = dimensions
        self._fading = fading
        self._records = list(records)
        self._table = np.array([_row(item) for item in records], float).reshape(-1, dimensions + 2)

    def __len__(self) -> int:
        return len(self._records)

    def get(self, observation_id: str) -> Observation | None:
        matches = (item for item in self._records if item.id == observation_id)
        return next(map(observation_of, matches), None)

    def all(self) -> list[Observation]:
        records = sorted(self._records, key=lambda record: (record.created_at, record.id))
        return [observation_of(record) for record in records]

    def changed(self, changes: Mapping[str, Record | None]) -> PlaceIndex:
        """Return an index after changes. `changes` has records by id; None for a deleted record."""
        added = [item for item in changes.values() if item is not None]
        rows = [row for row, item in enumerate(self._records) if item.id not in changes]
        index = PlaceIndex(self._dimensions, self._fading, added)
        index._records[:0] = [self._records[row] for row in rows]
        index._table = np.concatenate([self._table[rows], index._table])
        return index

    def search(
        self,
        moment: Moment,
        position: Position | None = None,
        radius: float = inf,
        box: tuple[Position, Position] | None = None,
    ) -> Rows:
        """Return the observations with at least the minimum confidence, unordered.

        Distances are measured from `position`. `radius`, and the corners of `box`, are inclusive.
        """
        positions, ages, distance = self._table[:, :-2], moment.seconds - self._table[:, -2], None
        confidences = left(self._table[:, -1], ages, self._fading.half_life)
        wanted = confidences >= self._fading.least
        if moment.past:
            wanted &= ages >= 0
        if position is not None:
            distance = distances(positions, position)
            wanted &= distance <= radius
        if box is not None:
            wanted &= ((positions >= box[0]) & (positions <= box[1])).all(axis=1)
        rows = np.flatnonzero(wanted)
        far = None if distance is None else distance[rows]
        return Rows(self._records, rows, far, confidences[rows], ages[rows])


def _row(record: Record) -> tuple[float, ...]:
    fields = record.metadata
    return (*fields["position"], record.created_at.timestamp(), fields["confidence"])


def distances(positions: np.ndarray, position: Sequence[float]) -> np.ndarray:
    """Return the Euclidean distance of each position from `position`. Tiny distances stay exact."""
    return np.asarray(reduce(np.hypot, (positions - np.array(position)).T))


def left(confidences: np.ndarray, ages: np.ndarray, half_life: float | None) -> np.ndarray:
    """Return confidences after fading: 1/2 of the original after one half-life, 1/4 after two."""
    if half_life is None:
        return confidences
    # an observation from the future has not faded yet
    return np.asarray(confidences * 0.5 ** (np.maximum(ages, 0) / half_life))


def proximity(distance: np.ndarray) -> np.ndarray:
    """Return the proximity of distances: 1 at 0, 1/2 at the median, 1/3 at twice the median."""
    near = np.ones(len(distance))
    if len(distance):
        middle = np.sort(distance)[(len(distance) - 1) // 2]
        np.divide(middle, middle + distance, out=near, where=distance > 0)
    return near


def scored(results: Rows, relevance: np.ndarray | None = None) -> np.ndarray:
    """Return scores from 0 to 1: proximity x confidence, or the mean of this and the relevance."""
    near = 1.0 if results.distances is None else proximity(results.distances)
    sure = near * results.confidences
    return np.asarray(sure if relevance is None else (sure + relevance) / 2)
