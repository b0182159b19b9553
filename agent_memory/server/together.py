"""Brief calls, made together: those that wait at the same time take one turn on one thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

J = TypeVar("J")
T = TypeVar("T")

_MOST = 32
"""Calls in a turn: who is the first of them waits for the last."""

MakeAll: TypeAlias = Callable[[Sequence[J]], Sequence[Any]]
"""Makes calls, and gives what comes of each: an answer, or the error that it failed with."""


class _Waiting(NamedTuple, Generic[J]):
    job: J
    future: asyncio.Future[Any]
    until: float


class Run(Protocol):
    """Makes a call on a thread."""

    def __call__(self, call: Callable[[], T], /) -> Coroutine[Any, Any, T]: ...


class Together(Generic[J]):
    """Makes brief calls, of one event loop.

    A call that comes alone has a thread at once. Those that come while it is made have the next
    turn, all of them: a thread for each would cost several times as much as the calls themselves,
    nearly all of it for taking the interpreter from each other.

    Args:
        run: Makes a call on a thread.
        make_all: Makes those of a turn.
        turns: How many turns may be under way at once.
        seconds: How long a call is waited for.
    """

    def __init__(self, run: Run, make_all: MakeAll[J], turns: int, seconds: float) -> None:
        self._run = run
        self._make_all = make_all
        self._most = turns
        self._seconds = seconds
        self._waiting: list[_Waiting[J]] = []
        self._under_way = 0
        self._tasks: set[asyncio.Task[None]] = set()  # a loop keeps no task alive

    async def made(self, job: J) -> Any:
        """What comes of a call, made on a thread in a turn with others.

        Raises:
            TimeoutError: It takes too long. If it has begun it comes to its end all the same.
        """
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        self._waiting.append(_Waiting(job, future, loop.time() + self._seconds))
        if self._under_way < self._most:
            self._under_way += 1
            task = asyncio.ensure_future(self._turns())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return await future

    async def _turns(self) -> None:
        try:
            while self._waiting:
                await self._turn()
        finally:  # here, not once the task is done: who comes in between would wait for nobody
            self._under_way -= 1

    async def _turn(self) -> None:
        some = [one for one in self._waiting[:_MOST] if not one.future.done()]
        del self._waiting[:_MOST]
        if not some:
            return
        outcomes: Sequence[Any]
        try:
            # one clock for all of them: whoever came later gives up a little sooner
            async with asyncio.timeout_at(some[0].until):
                outcomes = await self._run(partial(self._make_all, [one.job for one in some]))
        except Exception as error:  # noqa: BLE001 - such as no thread: told to all of them
            outcomes = [error] * len(some)
        except BaseException:  # the loop ends: nobody may be left waiting
            for one in some:
                one.future.cancel()
            raise
        for one, outcome in zip(some, outcomes, strict=True):
            if one.future.done():  # nobody waits any more
                continue
            if isinstance(outcome, Exception):
                one.future.set_exception(outcome)
            else:
                one.future.set_result(outcome)
