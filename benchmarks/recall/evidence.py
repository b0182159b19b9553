"""Measures the share of the evidence that a search returns. Pure."""

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from statistics import fmean

DEPTHS = (5, 10, 25, 50)
_RESAMPLES = 1_000
_SEED = 20_231_108


@dataclass(frozen=True)
class Ranks:
    """The result of a search for one question, best first.

    `ranked` has the turns of each record. `within` has the recalled turns, and `tokens` their
    tokens, by token budget.
    """

    category: str
    evidence: frozenset[str]
    ranked: tuple[frozenset[str], ...]
    within: dict[int, frozenset[str]]
    tokens: dict[int, int]
    seconds: float

    def recall(self, depth: int) -> float:
        """Share of the evidence among the first `depth` memories."""
        return _share(self.evidence, frozenset().union(*self.ranked[:depth]))

    def within_budget(self, budget: int) -> float:
        """Share of the evidence that was recalled within a token budget."""
        return _share(self.evidence, self.within[budget])


def figures(found: Sequence[Ranks], budgets: Collection[int]) -> dict[str, float]:
    """Return means over questions. All values except tokens are in percent.

    Among the first k memories: `recall@k` is the share of the evidence, and `all@k` the share of
    questions with all of their evidence.
    """
    means: dict[str, float] = {}
    for depth in DEPTHS:
        shares = [one.recall(depth) for one in found]
        means[f"recall@{depth}"] = _percent(shares)
        means[f"all@{depth}"] = _percent([share == 1 for share in shares])
    for budget in budgets:
        means[f"within {budget}"] = _percent([one.within_budget(budget) for one in found])
        means[f"tokens at {budget}"] = fmean(one.tokens[budget] for one in found)
    return means


def interval(shares: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % bootstrap interval of a mean, in percent. Deterministic."""
    draws = random.Random(_SEED)
    means = sorted(fmean(draws.choices(shares, k=len(shares))) for _ in range(_RESAMPLES))
    return means[int(0.025 * _RESAMPLES)] * 100, means[int(0.975 * _RESAMPLES)] * 100


def _share(evidence: frozenset[str], turns: frozenset[str]) -> float:
    return len(evidence & turns) / len(evidence)


def _percent(shares: Sequence[float]) -> float:
    return fmean(shares) * 100
