"""The soak runs, and tells what grows from what does not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.durability.soak import Sample, risen

ROOT = Path(__file__).parents[2]
_FLAT = {"rss": 300.0, "workers": 200.0, "files": 30.0, "threads": 20.0, "wal": 9.0, "p99": 20.0}


def _hour(**rises: float) -> list[Sample]:
    """Samples in which some figures rise by so much in each minute."""
    return [{**_FLAT, **{k: _FLAT[k] + n * rises[k] for k in rises}} for n in range(60)]


@pytest.mark.parametrize("name", _FLAT)
def test_what_rises_is_named(name: str) -> None:
    """Wrong: a leak of one kind passes as flat."""
    told = risen(_hour(**{name: _FLAT[name] / 5}))
    assert [one.partition(" ")[0] for one in told] == [name]


def test_what_settles_in_the_first_half_is_flat() -> None:
    """Wrong: caches that fill are taken for a leak."""
    samples = _hour()
    for number in range(30):
        samples[number]["rss"] = 10.0 * number
    assert risen(samples) == []


def test_a_single_peak_is_no_rise() -> None:
    """Wrong: one slow minute fails an hour."""
    samples = _hour()
    samples[50] = {**samples[50], "p99": 80.0}
    assert risen(samples) == []


@pytest.mark.long
def test_it_runs() -> None:
    """Wrong: the command ends with an error, or calls nothing."""
    few = ["--minutes", "0.1", "--every", "1", "--users", "2", "--workers", "1"]
    command = [sys.executable, "-m", "benchmarks", "durability", "soak", *few]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode in (0, 1), done.stderr
    assert "deletions" in done.stdout
    assert "errors: " in done.stdout
