"""How far, how sure, how near: the parts of a score, and the score. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple

import numpy as np

from agent_memory.ltm_blocks.spatial.observation import Observation, SpatialMatch, detached


class Found(NamedTuple):
    """What a search found, one row each.

    Attributes:
        observations: The observations.
        distances: From the position that was asked for; None where none was.
        confidences: How sure they are at the moment that was asked for.
        ages: Seconds since they were made.
    """

    observations: list[Observation]
    distances: np.ndarray | None
    confidences: np.ndarray
    ages: np.ndarray

    def rows(self, rows: Sequence[int] | np.ndarray) -> Found:
        """Some rows of it."""
        apart = None if self.distances is None else self.distances[rows]
        seen = [self.observations[row] for row in rows]
        return Found(seen, apart, self.confidences[rows], self.ages[rows])

    def cut(self, count: int, column: np.ndarray) -> Found:
        """Those of `first`, in no order."""
        return self if len(self.ages) <= count else self.rows(self.first(count, column))

    def first(self, count: int, *columns: np.ndarray) -> list[int]:
        """The rows with the least values, least first; of equals the newest first.

        Args:
            count: At most so many.
            columns: By which to order, the second where the first has equals, and so on.
        """
        rows = np.arange(len(self.ages))
        if count < len(rows):
            rows = np.flatnonzero(columns[0] <= np.partition(columns[0], count - 1)[count - 1])
        values = [column[rows].tolist() for column in (*columns, self.ages)]
        ids = [self.observations[row].id for row in rows]
        keys = list(zip(*values, ids, strict=True))
        return [int(rows[at]) for at in sorted(range(len(keys)), key=keys.__getitem__)[:count]]


def distances(positions: np.ndarray, position: Sequence[float]) -> np.ndarray:
    """(n,) the Euclidean distances of positions from one, right however small they are."""
    return np.asarray(reduce(np.hypot, (positions - np.array(position)).T))


def left(confidences: np.ndarray, ages: np.ndarray, half_life: float | None) -> np.ndarray:
    """(n,) what is left of confidences: half after a half-life, a quarter after two.

    Args:
        confidences: As given.
        ages: In seconds; what is of a later time has not aged.
        half_life: In seconds; None for ever.
    """
    if half_life is None:
        return confidences
    return np.asarray(confidences * 0.5 ** (np.maximum(ages, 0) / half_life))


def proximity(apart: np.ndarray) -> np.ndarray:
    """(n,) how near things are: 1 at no distance, 1/2 at the middle one of the distances, 1/3 at
    twice that. So it does not matter in which unit they are.

    Args:
        apart: The distances.
    """
    near = np.ones(len(apart))
    if len(apart):
        middle = np.sort(apart)[(len(apart) - 1) // 2]
        np.divide(middle, middle + apart, out=near, where=apart > 0)
    return near


def scored(found: Found, relevance: np.ndarray | None = None) -> np.ndarray:
    """(n,) proximity x confidence; with a query the mean of that and of the relevance; 0 to 1.

    Args:
        found: What was found. Where no position was asked for, all is as near as can be.
        relevance: What the texts have in common with the query; None without one.
    """
    near = 1.0 if found.distances is None else proximity(found.distances)
    sure = near * found.confidences
    return np.asarray(sure if relevance is None else (sure + relevance) / 2)


def ranked(found: Found, count: int, relevance: np.ndarray | None = None) -> list[SpatialMatch]:
    """The best of what was found. Of those with the same score the nearest is first, then the
    newest.

    Args:
        found: What was found, in any order.
        count: At most so many.
        relevance: As in `scored`.
    """
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
    """Two findings from one position, each observation once."""
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
