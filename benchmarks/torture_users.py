"""A user of a run of random calls: one who may be deleted while others call for him."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.torture_canaries import Aviary


class User:
    """One user: the word of this life, and a lock that many share, or one has alone.

    Args:
        name: The user's id.
        aviary: Makes the words.
    """

    def __init__(self, name: str, aviary: Aviary) -> None:
        self.name = name
        self.life = 0
        self._aviary = aviary
        self._changed = threading.Condition()
        self._sharing = 0
        self._alone = False
        self.word = aviary.word(name, 0)

    def begin_anew(self) -> None:
        """Another life."""
        self.word = self._aviary.word(self.name, self.life + 1)
        self.life += 1

    @contextmanager
    def held(self, *, alone: bool) -> Iterator[None]:
        """Keep the user's life as it is; alone, nobody does anything else for the user."""
        with self._changed:
            self._changed.wait_for(lambda: not self._alone)
            if alone:
                self._alone = True
                self._changed.wait_for(lambda: not self._sharing)
            else:
                self._sharing += 1
        try:
            yield
        finally:
            with self._changed:
                if alone:
                    self._alone = False
                else:
                    self._sharing -= 1
                self._changed.notify_all()
