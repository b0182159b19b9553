"""A pool of connections. The holder of a place's lock uses its connection.

A signal may raise an exception between any two steps of Python. Locks of C are therefore held only
by `with`, nothing is counted, and a connection never leaves its place.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from queue import Empty, SimpleQueue
from random import choice
from time import monotonic
from typing import Generic, Protocol, TypeVar

_LOOK_SECONDS = (
    0.1  # the seconds after which a waiting thread looks for a free place without a notice
)


class _Closes(Protocol):
    def close(self) -> object: ...


C = TypeVar("C", bound=_Closes)


class Place(Generic[C]):
    """The place of one connection in the pool.

    Args:
        keeps: Whether an idle connection stays open.
        errors: Errors of closing that are ignored.
    """

    def __init__(self, keeps: bool, errors: tuple[type[Exception], ...] = ()) -> None:
        self.keeps = keeps
        self._errors = errors
        self.lock = threading.Lock()
        self.connection: C | None = None

    def clear(self) -> None:
        """Close the connection. The caller holds the lock."""
        connection, self.connection = self.connection, None
        if connection is not None:
            with suppress(*self._errors):
                connection.close()


class Places(Generic[C]):
    """A pool with a fixed number of places.

    Args:
        most: The most connections.
        idle: The most idle connections that stay open.
        errors: Errors of closing that are ignored.
    """

    def __init__(self, most: int, idle: int, *errors: type[Exception]) -> None:
        self._all: list[Place[C]] = [Place(number < idle, errors) for number in range(most)]
        self._freed: SimpleQueue[None] = SimpleQueue()
        self._awaited: set[int] = set()  # the threads that wait

    def __iter__(self) -> Iterator[Place[C]]:
        return iter(self._all)

    def free(self) -> Place[C] | None:
        """Return the first free place, whose connection is most likely open, or None."""
        return next((place for place in self._all if not place.lock.locked()), None)

    def any(self) -> Place[C]:
        """Return a free place, or a random one if all are held."""
        return self.free() or choice(self._all)

    def awaited(self, seconds: float) -> Place[C] | None:
        """Wait for a free place, and return it; None if that takes too long."""
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
        """Notify waiting threads that a place is free."""
        if self._freed.qsize() < len(self._awaited):
            self._freed.put(None)

    def clear(self) -> None:
        """Close idle connections. The user of a busy one closes it afterwards."""
        for place in self._all:
            if not place.lock.locked():
                with place.lock:
                    place.clear()
