"""Letting what fails rest, longer each time, so that an outage does not slow every call."""

from __future__ import annotations

from collections.abc import Hashable
from time import monotonic

LONGEST_REST = 300.0
"""Seconds after which what keeps failing is tried again at the latest."""


class Backoff:
    """Remembers what failed, and until when it rests.

    After one failure the next call tries again at once; after that it rests 4, 8, 16 ... seconds.
    """

    def __init__(self) -> None:
        self._failures: dict[Hashable, int] = {}
        self._until: dict[Hashable, float] = {}

    def ready(self, *names: Hashable) -> bool:
        """Whether all of them may be tried now."""
        return not self.seconds(*names)

    def seconds(self, *names: Hashable) -> float:
        """How long to wait until all of them may be tried; 0 for now."""
        return max(0.0, max(self._until.get(name, 0.0) for name in names) - monotonic())

    def idle(self, name: Hashable) -> bool:
        """Whether it has no failure since it last worked."""
        return name not in self._failures

    def failed(self, name: Hashable) -> None:
        """It failed: let it rest, unless this was the first time."""
        failures = self._failures[name] = self._failures.get(name, 0) + 1
        if failures > 1:
            self._until[name] = monotonic() + min(2.0 ** min(failures, 60), LONGEST_REST)

    def succeeded(self, name: Hashable) -> None:
        """It worked: forget its failures."""
        self._failures.pop(name, None)
        self._until.pop(name, None)
