"""`AsyncCompletionStream`: the chunks of a completion, awaited."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from agent_memory.aio.awaited import Awaits, Run, awaited
from agent_memory.core.usage import Usage
from agent_memory.engine.loop.rounds import CompletionStream

S = TypeVar("S")
P = ParamSpec("P")

_END = object()


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
    """Return the async method of a completion; a stream becomes an `AsyncCompletionStream`.

    Args:
        call: The method of the sync class.
    """
    answered = awaited(call)

    @wraps(answered)
    async def method(self: Awaits, /, *args: P.args, **kwargs: P.kwargs) -> Any:
        given = await answered(self, *args, **kwargs)
        return AsyncCompletionStream(given, self._run) if type(given) is CompletionStream else given

    return method
