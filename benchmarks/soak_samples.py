"""What a soak is by the minute, and whether it is flat."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import mean, quantiles
from time import perf_counter, sleep

_SLACK = {"rss": 0.1, "workers": 0.1, "files": 0.1, "threads": 0.1, "wal": 0.3, "p99": 0.3}
"""What is to be flat, and the part that it may rise by; at any rate it may by so many:"""
_LEAST = {"rss": 8.0, "workers": 8.0, "files": 3.0, "threads": 3.0, "wal": 8.0, "p99": 5.0}

Sample = dict[str, float]
"""An interval: `minute`, at its end; MB: `rss` of the calling process, of all `workers`, `size` of
the file and the largest `wal`; `files` and `threads` of the calling process; `calls`, and of them
`deletions`; ms of updates, `p50` and `p99`, and of deletions, `delete` (p50) and `slowest`."""


def risen(samples: Sequence[Sample]) -> list[str]:
    """What is not flat: higher in the last quarter, on average, than in the one before."""
    quarter = len(samples) // 4
    if not quarter:
        return ["too short to tell"]
    found = []
    for name, slack in _SLACK.items():
        values = [one[name] for one in samples]
        before, after = mean(values[-2 * quarter : -quarter]), mean(values[-quarter:])
        if after - before > max(slack * before, _LEAST[name]):
            found.append(f"{name} {before:,.0f} to {after:,.0f}")
    return found


def sampled(
    taken: Callable[[], Mapping[str, Sequence[float]]],
    url: str,
    minutes: float,
    every: float,
    workers: Sequence[int],
) -> Iterator[Sample]:
    """Look at this process and its workers for so long.

    Args:
        taken: Gives the milliseconds of the calls that ended since it was asked last, by name.
        url: The store's.
        minutes: How long.
        every: Seconds of an interval.
        workers: Their process ids.
    """
    begun = perf_counter()
    path = url.removeprefix("sqlite:///") if url.startswith("sqlite:") else None
    while (passed := perf_counter() - begun) < 60 * minutes:
        wal = 0.0
        while perf_counter() - begun < passed + every:
            sleep(min(0.2, every))
            wal = max(wal, _megabytes(path, "-wal"))
        calls = taken()
        updates, deletes = calls.get("update", []), calls.get("delete", [])
        sample = {
            "minute": (perf_counter() - begun) / 60, "rss": _resident(os.getpid()),
            "workers": sum(map(_resident, workers)), "files": len(os.listdir("/proc/self/fd")),
            "threads": threading.active_count(), "size": _megabytes(path, ""), "wal": wal,
            "calls": sum(map(len, calls.values())), "deletions": len(deletes),
            "p50": _part(updates, 50), "p99": _part(updates, 99),
            "delete": _part(deletes, 50), "slowest": max(deletes, default=0.0),
        }  # fmt: skip
        print({name: round(value, 1) for name, value in sample.items()}, file=sys.stderr)
        yield sample


def _part(values: Sequence[float], percent: int) -> float:
    return quantiles(values, n=100)[percent - 1] if len(values) > 1 else sum(values)


def _resident(pid: int) -> float:
    """Of a process, MB, as Linux tells it; 0 once it has ended."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def _megabytes(path: str | None, suffix: str) -> float:
    try:
        return os.stat(f"{path}{suffix}").st_size / 1e6 if path else 0.0
    except FileNotFoundError:
        return 0.0
