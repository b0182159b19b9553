"""One score from those of several views. Pure.

Each view is divided by its best score, so that a clear winner stays one; ranks alone, as reciprocal
rank fusion takes them, throw that away.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from agent_memory.retrieval.views import RRF, WEIGHTS


def shares(scores: np.ndarray, scale: np.ndarray | None = None) -> np.ndarray:
    """Each view's scores over its best; 0 throughout for a view that found nothing.

    Args:
        scores: (n, views), those of the best of each view among them.
        scale: (n,) which of them the best is looked for among, where they have any; None: all.
    """
    best = scores.max(axis=0, initial=0.0)
    if scale is not None:
        meant = scores[scale].max(axis=0, initial=0.0)
        best = np.where(meant > 0, meant, best)
    return np.asarray(np.clip(scores / np.where(best > 0, best, 1), 0, 1))


def blended(shares: np.ndarray, weights: Sequence[float] = WEIGHTS) -> np.ndarray:
    """The weighted mean of the views that found something, between 0 and 1."""
    counted = np.array(weights, np.float32) * (shares.max(axis=0, initial=0.0) > 0)
    whole = float(counted.sum())
    return np.asarray(shares @ counted / whole if whole else np.zeros(len(shares), np.float32))


def by_ranks(shares: np.ndarray, weights: Sequence[float] = WEIGHTS, k: float = RRF) -> np.ndarray:
    """Reciprocal rank fusion (Cormack et al., 2009) over the best possible; 0 to 1.

    Views with a weight of 0 are left out; the others count alike.

    Args:
        shares: As `shares` gives them.
        weights: What each view counts.
        k: The larger, the less the first ranks count for more than the next.
    """
    fused = np.zeros(len(shares), np.float32)
    views = [view for view, weight in enumerate(weights) if weight > 0]
    for view in views:
        order = np.argsort(-shares[:, view], kind="stable")
        ranks = np.empty(len(order), np.int64)
        ranks[order] = np.arange(1, len(order) + 1)
        fused += np.where(shares[:, view] > 0, (k + 1) / (k + ranks), 0) / len(views)
    return fused
