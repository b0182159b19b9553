"""Async calls derived from sync ones, with their signatures and docstrings."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

S = TypeVar("S")
P = ParamSpec("P")
T = TypeVar("T")


class Run(Protocol):
    """Makes a call on a thread of a memory's."""

    def __call__(self, call: Callable[[], T], /) -> Coroutine[Any, Any, T]: ...


class Awaits(Protocol):
    """An async face: what it is the face of, and what its calls are made with."""

    @property
    def _sync(self) -> Any: ...

    @property
    def _run(self) -> Run: ...


def awaited(
    call: Callable[Concatenate[S, P], T],
) -> Callable[Concatenate[Awaits, P], Coroutine[Any, Any, T]]:
    """The method of an async face that makes a call of its sync object, on a thread.

    `update = awaited(AgentMemory.update)`: type checkers see the parameters of the original by
    name, and what it returns, awaited. A subclass of the original is called as such.

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
