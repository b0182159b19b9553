"""Races, injected where they hurt."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass
class Gone:
    """A session that is gone when its lease is asked for, and back when the asker looks again.

    For `watched`: the store that is watched is the asker's.

    Attributes:
        go: Has the session go, before the lease is asked for.
        come_back: Has it come back, once the asker has seen that it is gone.
        armed: Whether the next lease is the one.
        over: Whether all of that has happened.
    """

    go: Callable[[], object]
    come_back: Callable[[], object]
    armed: bool = False
    over: bool = False
    _away: bool = False

    def __call__(self, step: str) -> None:
        if self.armed and step == "before lease":
            self.armed, self._away = False, True
            self.go()
        elif self._away and step == "after head":
            self._away, self.over = False, True
            self.come_back()
