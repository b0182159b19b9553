"""Rate limits of credentials, and size and time limits of requests."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from agent_memory.core.cache import Cache

_MOST_KEPT = 10_000


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of every request."""

    body_bytes: int = 4 * 1024 * 1024  # maximum size of a request's body
    # average number of requests per second for a credential, in each process; 0 for no limit
    per_second: float = 50.0
    burst: int = 200  # number of requests that a credential may make without a pause
    call_seconds: float = 60.0  # the time limit of a call


class Buckets:
    """Counts the requests of credentials in this process. For one event loop only."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._kept: Cache[str, tuple[float, float]] = Cache(_MOST_KEPT)  # requests left, time

    def wait(self, name: str, now: float) -> int:
        """Count a request and return 0. If it exceeds the limit, return the seconds to wait."""
        limits = self._limits
        if not limits.per_second:
            return 0
        left, at = self._kept.get(name, (limits.burst, now))
        left = min(limits.burst, left + max(0.0, now - at) * limits.per_second)
        wait = 0 if left >= 1 else max(1, ceil((1 - left) / limits.per_second))
        # the cache evicts the least recently used bucket, which is usually full again
        self._kept.put(name, (left if wait else left - 1, now))
        return wait
