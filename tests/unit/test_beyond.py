"""What the simulation of many users counts up from what was measured."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.beyond import Measured, simulate

MEASURED = Measured("any", 100, {"log": 300.0, "segments": 1_000.0}, 1_000.0, {"a": 1.0, "b": 2.5})


def test_each_figure_follows_from_what_was_measured() -> None:
    """Else: the page tells of a size that nobody counted."""
    told = simulate(MEASURED, 10_000, 10_000_000, 9.0, 1)
    assert told.disk == pytest.approx(10_000_000 * 1_300)
    assert told.peak == pytest.approx(10_000 * 9 / 5 / 3600)
    assert told.calls == pytest.approx(told.peak * 3.5)
    assert told.cached == 256 * 2**20 // 1_000_000
    assert 1 <= told.largest_part < 1.05
    assert 1 <= told.largest_node < 2
    assert told.largest_user > 10_000  # of whom the mean has a thousand


def test_who_says_much_is_read_often() -> None:
    """Else: what is read for a context is taken for the mean user's."""
    told = simulate(MEASURED, 100_000, 100_000_000, 9.0, 1)
    mean = told.peak * 1_000 * MEASURED.segment
    assert 5 * mean < told.reading < 15 * mean  # e to the square of sigma, 9.5, in the limit
    twice = simulate(replace(MEASURED, segment=2_000.0), 100_000, 100_000_000, 9.0, 1)
    assert twice.reading == pytest.approx(2 * told.reading)
