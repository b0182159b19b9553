"""Erasures that several threads share."""

from __future__ import annotations

from collections.abc import Callable

from agent_memory.core.processes import begin_anew_in_child, known_lock


class Erasures:
    """One at a time. Those who ask while one is under way share the next.

    A signal may raise an exception between any two steps, and its handler may ask again.
    """

    def __init__(self) -> None:
        self._begun = self._ended = 0
        self._turn = known_lock()
        begin_anew_in_child(self, Erasures._let_go)

    def share(self, erase: Callable[[], None]) -> None:
        """Return once an erasure has ended that began after this call, be it another thread's.

        Args:
            erase: Does it. Its errors are raised to its own caller only.
        """
        before = self._begun
        with self._turn:
            if self._ended > before:
                return
            number = self._begun = self._begun + 1
            erase()
            self._ended = max(self._ended, number)

    def _let_go(self) -> None:
        self._turn = known_lock()
