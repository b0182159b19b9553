"""Backoff: growing pauses after failures, so that an outage does not slow every call."""

from __future__ import annotations

from collections.abc import Hashable
from time import monotonic

LONGEST_REST = 300.0
"""The maximum pause in seconds."""


class Backoff:
    """Counts failures by name, and determines when the next attempt is due.

    The first failure causes no pause. Further failures cause pauses of 4, 8, 16 ... seconds.
    """

    def __init__(self) -> None:
        self._failures: dict[Hashable, int] = {}
        self._until: dict[Hashable, float] = {}

    def ready(self, *names: Hashable) -> bool:
        """Return whether none of these names is paused."""
        return not self.seconds(*names)

    def seconds(self, *names: Hashable) -> float:
        """Return the seconds until none of these names is paused: 0 if none is paused now."""
        return max(0.0, max(self._until.get(name, 0.0) for name in names) - monotonic())

    def idle(self, name: Hashable) -> bool:
        """Return whether the newest attempt with this name succeeded, or none has failed yet."""
        return name not in self._failures

    def failed(self, name: Hashable) -> None:
        """Count a failure. Each failure after the first begins a pause."""
        failures = self._failures[name] = self._failures.get(name, 0) + 1
        if failures > 1:
            self._until[name] = monotonic() + min(2.0 ** min(failures, 60), LONGEST_REST)

    def succeeded(self, *names: Hashable) -> None:
        for name in names:
            self._failures.pop(name, None)
            self._until.pop(name, None)
