"""How much one credential may ask, and how large a request may be."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from math import ceil

_MOST_KEPT = 10_000


@dataclass(frozen=True, slots=True)
class Limits:
    """What is refused, whoever asks.

    Attributes:
        body_bytes: A request's body has at most so many.
        per_second: So many requests a credential may make in the long run, in each process; 0 for
            any number.
        burst: So many at once.
        call_seconds: After this time the caller is told that it took too long.
    """

    body_bytes: int = 4 * 1024 * 1024
    per_second: float = 50.0
    burst: int = 200
    call_seconds: float = 60.0


@dataclass(frozen=True, slots=True)
class Bucket:
    """What is left to a credential at a moment.

    Attributes:
        left: Requests that it may make at once.
        at: The moment, in seconds.
    """

    left: float
    at: float


def asked(bucket: Bucket, limits: Limits, now: float) -> tuple[Bucket, int]:
    """What is left after one more request, and in how many seconds it is to be made; 0 for now."""
    left = min(limits.burst, bucket.left + max(0.0, now - bucket.at) * limits.per_second)
    if left >= 1:
        return Bucket(left - 1, now), 0
    return Bucket(left, now), max(1, ceil((1 - left) / limits.per_second))


class Buckets:
    """What is left to each credential, in this process; of one event loop.

    Args:
        limits: How much there is.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._kept: OrderedDict[str, Bucket] = OrderedDict()

    def wait(self, name: str, now: float) -> int:
        """Count a request; in how many seconds it is to be made, 0 for now."""
        if not self._limits.per_second:
            return 0
        known = self._kept.get(name) or Bucket(self._limits.burst, now)
        self._kept[name], seconds = asked(known, self._limits, now)
        self._kept.move_to_end(name)
        if len(self._kept) > _MOST_KEPT:  # the longest unused, which is full again
            self._kept.popitem(last=False)
        return seconds
