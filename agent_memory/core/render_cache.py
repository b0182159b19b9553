"""Bounded caches of rendered messages."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from agent_memory.core.processes import fork_safe_lock

T = TypeVar("T")
U = TypeVar("U")

_MOST = 256


class Recent(Generic[T]):
    """A cache of the most recently used values.

    Args:
        most: The most values to hold.
    """

    def __init__(self, most: int = _MOST) -> None:
        self._lock = fork_safe_lock()
        self._values: OrderedDict[tuple[object, ...], T] = OrderedDict()
        self._most = most

    def find(self, key: tuple[object, ...]) -> T | None:
        """Return the value of a key, or None."""
        with self._lock:
            value = self._values.get(key)
            if value is not None:
                self._values.move_to_end(key)
            return value

    def put(self, key: tuple[object, ...], value: T) -> T:
        """Store a value, and return it."""
        with self._lock:
            self._values[key] = value
            while len(self._values) > self._most:
                self._values.popitem(last=False)
        return value

    def get(self, key: tuple[object, ...], make: Callable[[], U]) -> U:
        """Return the value of a key, and compute it if there is none."""
        value: Any = self.find(key)
        if value is None:
            computed: Any = make()
            value = self.put(key, computed)
        return value  # type: ignore[no-any-return]


KEPT: Recent[Any] = Recent()
"""The cache of values derived from long texts."""
