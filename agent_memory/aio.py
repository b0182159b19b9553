"""`AsyncAgentMemory`: the calls of `AgentMemory` for async code.

Each call runs on a thread, through anyio. This works with asyncio and trio, and with several event
loops at the same time. Each loop has at most 16 threads for a memory, and 64 for `completion`,
which waits for a model. A running call continues to its end even if its caller is cancelled. In a
cancelled scope (anyio, trio), the caller waits for the call, but not for a model. After
`asyncio.Task.cancel`, the caller does not wait.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import partial, wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Protocol, Self, TypeVar
from uuid import uuid4

import anyio
from anyio.lowlevel import RunVar
from anyio.to_thread import run_sync

from agent_memory.config.settings import AgentMemoryConfig
from agent_memory.core.usage import Usage
from agent_memory.engine.loop.rounds import CompletionStream
from agent_memory.engine.memory import AgentMemory
from agent_memory.engine.session import Session
from agent_memory.engine.stats import Progress
from agent_memory.engine.user import User

S = TypeVar("S")
P = ParamSpec("P")
T = TypeVar("T")

THREADS = 16
MODEL_THREADS = 64
"""Calls that wait for a model have their own threads, so that no other call waits for a model."""

_END = object()


class Run(Protocol):
    """A function that runs a call on a thread, when fewer than `threads` are busy."""

    def __call__(
        self, call: Callable[[], T], /, threads: int = THREADS
    ) -> Coroutine[Any, Any, T]: ...


def awaited(
    call: Callable[Concatenate[S, P], T], threads: int = THREADS
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """Return an async method that runs a sync class's method on a thread.

    With `update = awaited(AgentMemory.update)`, type checkers see the parameters of the sync method
    and an awaitable result. The method is looked up by its name, so a subclass may override it.
    """
    name = call.__name__

    @wraps(call)
    async def method(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        bound: Callable[P, T] = getattr(self._sync, name)
        result: T = await self._run(partial(bound, *args, **kwargs), threads)
        return result

    method.__qualname__ = f"Async{call.__qualname__}"
    return method


class AsyncCompletionStream:
    """A `CompletionStream` that is read with `async for`.

    If the reading task is cancelled while it waits for a chunk, the stream is closed. The turn is
    then stored only if the last chunk had been read.
    """

    def __init__(self, stream: CompletionStream, run: Run) -> None:
        self._stream = stream
        self._run = run

    @property
    def response(self) -> Any:
        """The response of the last round. See `CompletionStream.response`."""
        return self._stream.response

    @property
    def usage(self) -> Usage:
        """The model usage so far. See `CompletionStream.usage`."""
        return self._stream.usage

    @property
    def cost(self) -> float | None:
        """The cost in US dollars. See `CompletionStream.cost`."""
        return self._stream.cost

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        try:
            chunk = await self._run(partial(next, self._stream, _END), MODEL_THREADS)
        except BaseException:  # also if the task is cancelled: nothing else closes the stream
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
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, Any]]:
    """Return an async `completion`. With `stream`, it returns an `AsyncCompletionStream`."""
    complete = awaited(call, MODEL_THREADS)

    @wraps(complete)
    async def method(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> Any:
        answer = await complete(self, *args, **kwargs)
        if type(answer) is CompletionStream:
            return AsyncCompletionStream(answer, self._run)
        return answer

    return method


class AsyncUser:
    """A `User` for async code.

    Handles that its methods return, such as `notes`, are synchronous: call their methods with
    `AsyncAgentMemory.run`.

    Attributes:
        user_id: The user's id. None for the memory of a session without a user.
    """

    def __init__(self, user: User, run: Run) -> None:
        self._sync = user
        self._run = run
        self.user_id = user.user_id

    def __repr__(self) -> str:
        return f"Async{self._sync!r}"

    facts = awaited(User.facts)
    profile = awaited(User.profile)
    stale = awaited(User.stale)
    audit = awaited(User.audit)
    forget = awaited(User.forget)
    pin = awaited(User.pin)
    unpin = awaited(User.unpin)
    surplus = awaited(User.surplus)
    forget_all = awaited(User.forget_all)
    notes = awaited(User.notes)
    files = awaited(User.files)
    skills = awaited(User.skills)
    spatial = awaited(User.spatial)
    values = awaited(User.values)
    open = awaited(User.open)
    sessions = awaited(User.sessions)
    delete = awaited(User.delete)


class AsyncSession:
    """A `Session` for async code, from `AsyncAgentMemory.session`.

    Attributes:
        session_id: The session's id.
        user_id: The user's id. None if the session was opened without a user.
    """

    def __init__(self, session: Session, run: Run) -> None:
        self._sync = session
        self._run = run
        self.session_id = session.session_id
        self.user_id = session.user_id

    def __repr__(self) -> str:
        return f"Async{self._sync!r}"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        with anyio.CancelScope(shield=True):
            await self.end()

    update = awaited(Session.update)
    get = awaited(Session.get)
    search = awaited(Session.search)
    history = awaited(Session.history)
    contexts = awaited(Session.contexts)
    pop = awaited(Session.pop)
    before_turn = awaited(Session.before_turn)
    after_turn = awaited(Session.after_turn)
    regenerate = awaited(Session.regenerate)
    completion = completion_of(Session.completion)
    tools = awaited(Session.tools)
    call_tool = awaited(Session.call_tool)
    working = awaited(Session.working)
    end = awaited(Session.end)
    flush = awaited(Session.flush)
    head = awaited(Session.head)
    describe = awaited(Session.describe)
    prune = awaited(Session.prune)
    pin = awaited(Session.pin)
    unpin = awaited(Session.unpin)
    edit = awaited(Session.edit)
    checkpoint = awaited(Session.checkpoint)
    export = awaited(Session.export)
    delete = awaited(Session.delete)

    async def owner(self) -> AsyncUser:
        """Return a handle for the session's user. See `Session.owner`."""
        return AsyncUser(await self._run(self._sync.owner), self._run)


class AsyncAgentMemory:
    """An `AgentMemory` for async code. It has the same calls, which are awaited.

    Args:
        config: An open `AgentMemory`, or any value that `AgentMemory` accepts.
        **fields: See `AgentMemory`.

    Attributes:
        memory: The wrapped memory.
    """

    def __init__(
        self, config: AgentMemoryConfig | AgentMemory | str | Path | None = None, **fields: Any
    ) -> None:
        if isinstance(config, AgentMemory):
            self.memory = config
        else:
            self.memory = AgentMemory(config, **fields)
        self._sync = self.memory
        # one limiter for each event loop: a waiting task can be woken only in its own loop
        self._limiters = {
            threads: RunVar[anyio.CapacityLimiter](f"agent-memory-{threads}-{uuid4()}")
            for threads in (THREADS, MODEL_THREADS)
        }
        self._calls = 0
        self._ended = threading.Condition()

    def __repr__(self) -> str:
        return f"Async{self.memory!r}"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        with anyio.CancelScope(shield=True):  # close the memory even if the block is cancelled
            await self.close()

    update = awaited(AgentMemory.update)
    get = awaited(AgentMemory.get)
    search = awaited(AgentMemory.search)
    remember = awaited(AgentMemory.remember)
    explain = awaited(AgentMemory.explain)
    history = awaited(AgentMemory.history)
    contexts = awaited(AgentMemory.contexts)
    head = awaited(AgentMemory.head)
    describe = awaited(AgentMemory.describe)
    prune = awaited(AgentMemory.prune)
    pin = awaited(AgentMemory.pin)
    unpin = awaited(AgentMemory.unpin)
    edit = awaited(AgentMemory.edit)
    pop = awaited(AgentMemory.pop)
    before_turn = awaited(AgentMemory.before_turn)
    after_turn = awaited(AgentMemory.after_turn)
    regenerate = awaited(AgentMemory.regenerate)
    completion = completion_of(AgentMemory.completion)
    tools = awaited(AgentMemory.tools)
    call_tool = awaited(AgentMemory.call_tool)
    end = awaited(AgentMemory.end)
    flush = awaited(AgentMemory.flush)
    delete = awaited(AgentMemory.delete)
    checkpoint = awaited(AgentMemory.checkpoint)
    delete_user = awaited(AgentMemory.delete_user)
    sessions = awaited(AgentMemory.sessions)
    share = awaited(AgentMemory.share)
    values = awaited(AgentMemory.values)
    open = awaited(AgentMemory.open)
    stats = awaited(AgentMemory.stats)
    warm_up = awaited(AgentMemory.warm_up)

    def session(self, session_id: str, user_id: str | None = None) -> AsyncSession:
        """Return a handle for a session. See `AgentMemory.session`."""
        return AsyncSession(self.memory.session(session_id, user_id), self._run)

    def user(self, user_id: str) -> AsyncUser:
        """Return a handle for a user. See `AgentMemory.user`."""
        return AsyncUser(self.memory.user(user_id), self._run)

    async def replay(self, block: str) -> AsyncIterator[Progress]:
        """Rebuild a block from the logs, and yield the progress. See `AgentMemory.replay`."""
        steps = self.memory.replay(block)
        while (step := await self._run(partial(next, steps, None))) is not None:
            yield step

    async def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run any function on one of the memory's threads, for example a method of a handle.

            pad = await memory.session("s-1").working()
            await memory.run(pad.set, "plan", ["book a table"])

        A running call continues to its end even if its caller is cancelled.
        """
        return await self._run(partial(call, *args, **kwargs))

    async def close(self) -> None:
        """Wait for running calls, also those of cancelled callers, and close the memory."""
        await run_sync(self._close)

    def _close(self) -> None:
        with self._ended:
            self._ended.wait_for(lambda: not self._calls)
        self.memory.close()

    async def _run(self, call: Callable[[], T], /, threads: int = THREADS) -> T:
        limiter = self._limiters[threads].get(None)
        if limiter is None:
            self._limiters[threads].set(limiter := anyio.CapacityLimiter(threads))
        is_model = threads == MODEL_THREADS  # it may hang, and nothing is stored before it answers
        counted = partial(self._counted, call)
        return await run_sync(counted, abandon_on_cancel=is_model, limiter=limiter)

    def _counted(self, call: Callable[[], T]) -> T:
        with self._ended:
            self._calls += 1
        try:
            return call()
        finally:
            with self._ended:
                self._calls -= 1
                self._ended.notify_all()
