"""A bounded, thread-safe cache."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from operator import is_
from typing import Any, TypeVar

from agent_memory.core.processes import fork_safe_lock

K = TypeVar("K")
V = TypeVar("V")
U = TypeVar("U")


class Cache(OrderedDict[K, V]):
    """A mapping that evicts the least recently used values.

    `find` and `put` count as uses, but `get` and `[]` do not. Each call is thread-safe. For a
    sequence of calls, hold `lock`. Change a cache only with `put`, `drop` and `clear`.

    Values are evicted until their total size is at most `most`, or only `least` values are left.
    """

    def __init__(self, most: int, size: Callable[[V], int] = lambda _: 1, least: int = 0) -> None:
        super().__init__()
        self.lock = fork_safe_lock()
        self.most = most
        self._size = size
        self._least = least
        self._sizes: dict[K, int] = {}
        self.total = 0

    def find(self, key: K) -> V | None:
        with self.lock:
            value = self.get(key)
            if value is not None:
                self.move_to_end(key)
            return value

    def put(self, key: K, value: V) -> V:
        size = self._size(value)
        with self.lock:
            self.total += size - self._sizes.get(key, 0)
            self._sizes[key], self[key] = size, value
            self.move_to_end(key)
            while self.total > self.most and len(self) > self._least:
                self.drop(next(iter(self)))
        return value

    def drop(self, key: K) -> V | None:
        """Remove and return the value of a key. Return None if there is no value."""
        with self.lock:
            self.total -= self._sizes.pop(key, 0)
            return self.pop(key, None)

    def clear(self) -> None:
        with self.lock:
            for key in list(self):
                self.drop(key)

    def computed(self, key: K, compute: Callable[[], U]) -> U:
        """Return the value of a key. If the key has no value, compute and store one first."""
        value: Any = self.find(key)
        if value is None:
            value = compute()
            self.put(key, value)
        return value  # type: ignore[no-any-return]


def continues(values: Sequence[object], cached: Sequence[object]) -> bool:
    """Return whether `values` begins with the same objects as `cached`."""
    return len(cached) <= len(values) and all(map(is_, cached, values))
