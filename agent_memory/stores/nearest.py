"""Exact nearest neighbours with numpy. Imported where vectors are searched, never before."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

_DIGITS = 6


def nearest(
    ids: Sequence[str], matrix: np.ndarray, vector: np.ndarray, limit: int
) -> list[tuple[str, float]]:
    """The ids of the rows with the highest dot product, best first; equals go by id.

    Args:
        ids: One id per row.
        matrix: (n, dimension) float32 rows of unit length.
        vector: (dimension,) of unit length.
        limit: At most this many.
    """
    if limit <= 0 or not ids:
        return []
    # float32 sums of equal rows differ in their last bits by place; rounding makes them equal
    scores = np.round(matrix @ np.asarray(vector, dtype=np.float32), _DIGITS)
    if limit < len(ids):
        bar = np.partition(scores, len(ids) - limit)[len(ids) - limit]
        places = np.flatnonzero(scores >= bar).tolist()
    else:
        places = list(range(len(ids)))
    best = sorted((-float(scores[place]), ids[place]) for place in places)[:limit]
    return [(name, -score) for score, name in best]
