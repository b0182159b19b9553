"""Connections that threads take in turn: who holds the lock of a place has its connection.

A signal may raise an exception between any two steps of Python. So locks of C are held by `with`
alone, nothing is counted, and a connection never leaves its place.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from queue import Empty, SimpleQueue
from random import choice
from time import monotonic
from typing import Generic, Protocol, TypeVar

_LOOK_SECONDS = 0.1  # whoever is not told that a place is free looks himself


class _Closes(Protocol):
    def close(self) -> object: ...


C = TypeVar("C", bound=_Closes)


class Place(Generic[C]):
    """Room for one who uses a connection.

    Args:
        keeps: Whether the connection stays open when nobody uses it.
        errors: What closing it may raise, and is no trouble.
    """

    def __init__(self, keeps: bool, errors: tuple[type[Exception], ...] = ()) -> None:
        self.keeps = keeps
        self._errors = errors
        self.lock = threading.Lock()
        self.connection: C | None = None

    def clear(self) -> None:
        """Close the connection. Who does it holds the lock."""
        connection, self.connection = self.connection, None
        if connection is not None:
            with suppress(*self._errors):
                connection.close()


class Places(Generic[C]):
    """Room for so many.

    Args:
        most: How many connections there are at most.
        idle: How many of them stay open when nobody uses them.
        errors: What closing one may raise, and is no trouble.
    """

    def __init__(self, most: int, idle: int, *errors: type[Exception]) -> None:
        self._all: list[Place[C]] = [Place(number < idle, errors) for number in range(most)]
        self._freed: SimpleQueue[None] = SimpleQueue()
        self._awaited: set[int] = set()  # the threads that wait

    def __iter__(self) -> Iterator[Place[C]]:
        return iter(self._all)

    def free(self) -> Place[C] | None:
        """A place that nobody holds, if there is one: the first, whose connection is most likely
        open."""
        return next((place for place in self._all if not place.lock.locked()), None)

    def any(self) -> Place[C]:
        """A place; where all are held, whose turn is next is left to chance."""
        return self.free() or choice(self._all)

    def awaited(self, seconds: float) -> Place[C] | None:
        """A place that nobody holds, as soon as there is one; None where that takes too long."""
        if (place := self.free()) is not None:
            return place
        deadline, thread = monotonic() + seconds, threading.get_ident()
        try:
            self._awaited.add(thread)
            while (place := self.free()) is None and (left := deadline - monotonic()) > 0:
                try:
                    self._freed.get(timeout=min(left, _LOOK_SECONDS))
                except Empty:
                    continue
            return place
        finally:
            self._awaited.discard(thread)

    def tell(self) -> None:
        """Tell those who wait that a place is free."""
        if self._freed.qsize() < len(self._awaited):
            self._freed.put(None)

    def clear(self) -> None:
        """Close the connections that nobody uses; who uses one clears its place afterwards."""
        for place in self._all:
            if not place.lock.locked():
                with place.lock:
                    place.clear()
