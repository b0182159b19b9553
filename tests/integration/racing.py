"""Races, injected where they hurt."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass
class Gone:
    """A session that goes before a lease is taken, and comes back after the next look.

    For `watched`: watch the store of the worker that takes the lease. The next lease counts once
    `armed`; afterwards `over` is set.
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
