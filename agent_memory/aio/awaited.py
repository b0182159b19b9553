"""Async methods derived from sync ones, with their signatures and docstrings."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, Protocol, Self, TypeVar

from agent_memory.core.usage import Usage
from agent_memory.engine.loop.rounds import CompletionStream

S = TypeVar("S")
P = ParamSpec("P")
T = TypeVar("T")

_END = object()


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
    """Return the async method of a sync class's method, which runs on a thread.

    With `update = awaited(AgentMemory.update)`, type checkers see the original's parameters, and
    its result awaited. If the sync object is a subclass, the overridden method is called.
    """
    name = call.__name__

    @wraps(call)
    async def method(self: Awaits, /, *args: P.args, **kwargs: P.kwargs) -> T:
        made: Callable[P, T] = getattr(self._sync, name)
        return await self._run(partial(made, *args, **kwargs))

    method.__qualname__ = f"Async{call.__qualname__}"
    return method


class AsyncCompletionStream:
    """A `CompletionStream` for `async for`.

    If the consumer is cancelled while it waits, the stream is closed. Nothing is stored then,
    unless the stream had been read to its end.

    Args:
        stream: The sync stream.
        run: Runs a call on a thread.
    """

    def __init__(self, stream: CompletionStream, run: Run) -> None:
        self._stream = stream
        self._run = run

    @property
    def response(self) -> Any:
        """The whole response. See `CompletionStream.response`."""
        return self._stream.response

    @property
    def usage(self) -> Usage:
        """The tokens used. See `CompletionStream.usage`."""
        return self._stream.usage

    @property
    def cost(self) -> float | None:
        """The cost in US dollars. See `CompletionStream.cost`."""
        return self._stream.cost

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        try:
            chunk = await self._run(partial(next, self._stream, _END))
        except BaseException:  # also if the task is cancelled: nothing else would close the stream
            self._stream.close()
            raise
        if chunk is _END:
            raise StopAsyncIteration
        return chunk

    async def aclose(self) -> None:
        """Close the stream. See `CompletionStream.close`."""
        self._stream.close()


def completion_of(
    call: Callable[Concatenate[S, P], Any],
) -> Callable[Concatenate[Awaits, P], Coroutine[Any, Any, Any]]:
    """Return the async method of a completion; a stream becomes an `AsyncCompletionStream`."""
    complete = awaited(call)

    @wraps(complete)
    async def method(self: Awaits, /, *args: P.args, **kwargs: P.kwargs) -> Any:
        answer = await complete(self, *args, **kwargs)
        if type(answer) is CompletionStream:
            return AsyncCompletionStream(answer, self._run)
        return answer

    return method
