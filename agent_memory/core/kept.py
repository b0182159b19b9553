"""What was made lately of long texts, so that showing a message again costs next to nothing."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, TypeVar

from agent_memory.core.processes import fork_safe_lock

T = TypeVar("T")

_MOST = 256


class Kept:
    """What was made for keys that were asked for lately."""

    def __init__(self) -> None:
        self._lock = fork_safe_lock()
        self._made: OrderedDict[tuple[object, ...], Any] = OrderedDict()

    def get(self, key: tuple[object, ...], make: Callable[[], T]) -> T:
        """What belongs to a key; made, if it was not."""
        with self._lock:
            found = self._made.get(key)
            if found is not None:
                self._made.move_to_end(key)
                return found  # type: ignore[no-any-return]
        made = make()
        with self._lock:
            self._made[key] = made
            while len(self._made) > _MOST:
                self._made.popitem(last=False)
        return made


KEPT = Kept()
