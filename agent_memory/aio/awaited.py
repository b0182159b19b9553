"""Derive async methods from sync ones, with their signatures and docstrings."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

S = TypeVar("S")
P = ParamSpec("P")
T = TypeVar("T")


class Run(Protocol):
    """Runs a call on one of a memory's threads."""

    def __call__(self, call: Callable[[], T], /) -> Coroutine[Any, Any, T]: ...


class Awaits(Protocol):
    """An async wrapper: its sync object, and the function that runs calls on threads."""

    @property
    def _sync(self) -> Any: ...

    @property
    def _run(self) -> Run: ...


def awaited(
    call: Callable[Concatenate[S, P], T],
) -> Callable[Concatenate[Awaits, P], Coroutine[Any, Any, T]]:
    """Return the async method of a sync method, which runs on a thread.

    With `update = awaited(AgentMemory.update)`, type checkers see the original's parameters, and
    its result awaited. If the sync object is a subclass, the overridden method is called.

    Args:
        call: The method of the sync class.
    """
    name = call.__name__

    @wraps(call)
    async def method(self: Awaits, /, *args: P.args, **kwargs: P.kwargs) -> T:
        made: Callable[P, T] = getattr(self._sync, name)
        return await self._run(partial(made, *args, **kwargs))

    method.__qualname__ = f"Async{call.__qualname__}"
    return method
