"""The metrics of the recall benchmark."""

from collections.abc import Sequence

import pytest

from benchmarks.recall.evidence import Ranks, figures, interval


def ranked(evidence: str, ranked: Sequence[str], within: str = "") -> Ranks:
    return Ranks(
        category="multi-hop",
        evidence=frozenset(evidence),
        ranked=tuple(frozenset(one) for one in ranked),
        within={1000: frozenset(within)},
        tokens={1000: 10},
        seconds=0.0,
    )


def test_recall_and_rank_metrics_are_computed_correctly() -> None:
    """Wrong: a record counts twice, or rank, recall or confidence interval is miscalculated."""
    one = ranked("ab", ["x", "a", "a", "x", "x", "b"])
    assert one.recall(5) == 0.5
    assert one.recall(10) == 1.0
    assert ranked("ab", []).recall(5) == 0.0
    assert ranked("ab", ["ab"]).recall(5) == 1.0
    means = figures([ranked("ab", ["a"], "ab"), ranked("c", ["c"]), ranked("d", [])], [1000])
    assert means["recall@5"] == pytest.approx(50)
    assert means["all@5"] == pytest.approx(100 / 3)
    assert means["within 1000"] == pytest.approx(100 / 3)
    assert means["tokens at 1000"] == 10
    shares = [1.0] * 60 + [0.0] * 40
    low, high = interval(shares)
    assert 45 < low < 60 < high < 75
    assert interval(shares) == (low, high)
    assert interval([1.0] * 5) == (100, 100)
