"""Rate limits of credentials, and size and time limits of requests."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from agent_memory.core.cache import Cache

_MOST_KEPT = 10_000


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of every request.

    Attributes:
        per_second: Requests per second that a credential may make on average, in each process; 0
            for no limit.
        burst: Requests that a credential may make at a time.
        call_seconds: The time limit of a call.
    """

    body_bytes: int = 4 * 1024 * 1024
    per_second: float = 50.0
    burst: int = 200
    call_seconds: float = 60.0


@dataclass(frozen=True, slots=True)
class Bucket:
    """The requests left to a credential at a time.

    Attributes:
        at: The time, in seconds.
    """

    left: float
    at: float


def asked(bucket: Bucket, limits: Limits, now: float) -> tuple[Bucket, int]:
    """Take one request from a bucket. Return the new bucket and the seconds to wait; 0 for none."""
    left = min(limits.burst, bucket.left + max(0.0, now - bucket.at) * limits.per_second)
    if left >= 1:
        return Bucket(left - 1, now), 0
    return Bucket(left, now), max(1, ceil((1 - left) / limits.per_second))


class Buckets:
    """The buckets of all credentials in this process. Belongs to one event loop.

    Args:
        limits: The rate limit.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._kept: Cache[str, Bucket] = Cache(_MOST_KEPT)

    def wait(self, name: str, now: float) -> int:
        """Count a request, and return 0. Over the limit, return the seconds to wait."""
        if not self._limits.per_second:
            return 0
        known = self._kept.get(name) or Bucket(self._limits.burst, now)
        bucket, seconds = asked(known, self._limits, now)
        self._kept.put(name, bucket)  # evicts the least recently used, which has refilled
        return seconds
