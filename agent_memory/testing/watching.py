"""`watched` reports the calls of a store or an embedder, so that a test can interrupt them."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

T = TypeVar("T")


def watched(inner: T, watch: Callable[[str], None]) -> T:
    """Return an object that behaves like `inner`, and calls `watch` before and after each method.

        def fail(step: str) -> None:
            if step == "after append":
                os.kill(os.getpid(), signal.SIGKILL)

        memory = AgentMemory(store=watched(SQLStore("sqlite:///m.db"), fail))

    Args:
        inner: A store, an embedder, or any other object.
        watch: Called with "before <method>", and with "after <method>" unless the method raised
            an error. An error that `watch` raises reaches the caller of the method.
    """
    return cast("T", _Watched(inner, watch))


class _Watched:
    def __init__(self, inner: Any, watch: Callable[[str], None]) -> None:
        self._inner = inner
        self._watch = watch

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        if not callable(value):
            return value

        @wraps(value)
        def call(*args: Any, **kwargs: Any) -> Any:
            self._watch(f"before {name}")
            result = value(*args, **kwargs)
            self._watch(f"after {name}")
            return result

        return call
