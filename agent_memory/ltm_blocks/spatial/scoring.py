"""Distance, confidence and proximity: the parts of a score, and the score. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple

import numpy as np

from agent_memory.ltm_blocks.spatial.observation import Observation, SpatialMatch, detached


class Found(NamedTuple):
    """Search results, one row each.

    Attributes:
        observations: The observations.
        distances: Distances from the position of the search; None without one.
        confidences: Confidences at the time of the search.
        ages: Ages in seconds.
    """

    observations: list[Observation]
    distances: np.ndarray | None
    confidences: np.ndarray
    ages: np.ndarray

    def rows(self, rows: Sequence[int] | np.ndarray) -> Found:
        """Return some rows."""
        apart = None if self.distances is None else self.distances[rows]
        seen = [self.observations[row] for row in rows]
        return Found(seen, apart, self.confidences[rows], self.ages[rows])

    def cut(self, count: int, column: np.ndarray) -> Found:
        """Return the rows of `first`, unordered."""
        return self if len(self.ages) <= count else self.rows(self.first(count, column))

    def first(self, count: int, *columns: np.ndarray) -> list[int]:
        """Return the rows with the lowest values, lowest first; ties go to the newest."""
        rows = np.arange(len(self.ages))
        if count < len(rows):
            rows = np.flatnonzero(columns[0] <= np.partition(columns[0], count - 1)[count - 1])
        values = [column[rows].tolist() for column in (*columns, self.ages)]
        ids = [self.observations[row].id for row in rows]
        keys = list(zip(*values, ids, strict=True))
        return [int(rows[at]) for at in sorted(range(len(keys)), key=keys.__getitem__)[:count]]


def distances(positions: np.ndarray, position: Sequence[float]) -> np.ndarray:
    """(n,) Euclidean distances of positions from one, exact however small they are."""
    return np.asarray(reduce(np.hypot, (positions - np.array(position)).T))


def left(confidences: np.ndarray, ages: np.ndarray, half_life: float | None) -> np.ndarray:
    """(n,) confidences after fading: half after a half-life, a quarter after two.

    Args:
        confidences: The original confidences.
        ages: In seconds; negative ages count as 0.
        half_life: In seconds; None for no fading.
    """
    if half_life is None:
        return confidences
    return np.asarray(confidences * 0.5 ** (np.maximum(ages, 0) / half_life))


def proximity(apart: np.ndarray) -> np.ndarray:
    """(n,) proximity: 1 at distance 0, 1/2 at the median distance, 1/3 at twice that.

    It does not depend on the unit of distance.
    """
    near = np.ones(len(apart))
    if len(apart):
        middle = np.sort(apart)[(len(apart) - 1) // 2]
        np.divide(middle, middle + apart, out=near, where=apart > 0)
    return near


def scored(found: Found, relevance: np.ndarray | None = None) -> np.ndarray:
    """(n,) scores from 0 to 1: proximity x confidence, or with a query the mean of that and the
    relevance.

    Args:
        found: The results. Without a position, all have proximity 1.
        relevance: The texts' relevance to the query; None without one.
    """
    near = 1.0 if found.distances is None else proximity(found.distances)
    sure = near * found.confidences
    return np.asarray(sure if relevance is None else (sure + relevance) / 2)


def ranked(found: Found, count: int, relevance: np.ndarray | None = None) -> list[SpatialMatch]:
    """Return the best results. Ties go to the nearest, then to the newest."""
    scores = scored(found, relevance)
    apart = np.zeros(len(scores)) if found.distances is None else found.distances
    return [
        SpatialMatch(
            observation=detached(found.observations[row]),
            distance=None if found.distances is None else float(apart[row]),
            confidence=float(found.confidences[row]),
            relevance=None if relevance is None else float(relevance[row]),
            score=float(scores[row]),
        )
        for row in found.first(count, -scores, apart)
    ]


def joined(found: Found, others: Found) -> Found:
    """Merge two results from one position, each observation once."""
    assert found.distances is not None
    known = {one.id for one in found.observations}
    more = others.rows([row for row, one in enumerate(others.observations) if one.id not in known])
    assert more.distances is not None
    return Found(
        [*found.observations, *more.observations],
        np.concatenate([found.distances, more.distances]),
        np.concatenate([found.confidences, more.confidences]),
        np.concatenate([found.ages, more.ages]),
    )
