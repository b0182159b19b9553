"""`AsyncCompletionStream`: the chunks of a completion, awaited."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from agent_memory.aio.awaited import Awaits, Run, awaited
from agent_memory.core.usage import Usage
from agent_memory.engine.loop.conversing import CompletionStream

S = TypeVar("S")
P = ParamSpec("P")

_END = object()


class AsyncCompletionStream:
    """As `CompletionStream`, for `async for`.

    A consumer that is cancelled while it waits closes the stream: nothing is stored, unless all of
    it had been read already.

    Args:
        stream: What is read.
        run: Makes a call on a thread.
    """

    def __init__(self, stream: CompletionStream, run: Run) -> None:
        self._stream = stream
        self._run = run

    @property
    def response(self) -> Any:
        """As `CompletionStream.response`."""
        return self._stream.response

    @property
    def usage(self) -> Usage:
        """As `CompletionStream.usage`."""
        return self._stream.usage

    @property
    def cost(self) -> float | None:
        """As `CompletionStream.cost`."""
        return self._stream.cost

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        try:
            chunk = await self._run(partial(next, self._stream, _END))
        except BaseException:  # of a cancelled task too, for which nobody else would close it
            self._stream.close()
            raise
        if chunk is _END:
            raise StopAsyncIteration
        return chunk

    async def aclose(self) -> None:
        """As `CompletionStream.close`."""
        self._stream.close()


def completion_of(
    call: Callable[Concatenate[S, P], Any],
) -> Callable[Concatenate[Awaits, P], Coroutine[Any, Any, Any]]:
    """As `awaited`; what is a stream is given as an `AsyncCompletionStream`.

    Args:
        call: The method of the sync class.
    """
    answered = awaited(call)

    @wraps(answered)
    async def method(self: Awaits, /, *args: P.args, **kwargs: P.kwargs) -> Any:
        given = await answered(self, *args, **kwargs)
        return AsyncCompletionStream(given, self._run) if type(given) is CompletionStream else given

    return method
