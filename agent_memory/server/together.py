"""Batching: short calls that are pending at the same time run together on one thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeAlias, TypeVar

if TYPE_CHECKING:
    from agent_memory.aio.memory import Run

J = TypeVar("J")

_MOST = 32
"""The maximum size of a batch. Its first call waits until its last call is done."""

MakeAll: TypeAlias = Callable[[Sequence[J]], Sequence[Any]]
"""Runs a batch of calls, and returns a result or an error for each call."""


class _Waiting(NamedTuple, Generic[J]):
    job: J
    future: asyncio.Future[Any]
    until: float


class Together(Generic[J]):
    """Batches short calls. For one event loop only.

    A call starts immediately if fewer than `turns` batches run. Otherwise it joins the next batch.
    A thread for each call would be several times slower, because the threads compete for the
    interpreter lock.

    Args:
        turns: Maximum number of batches that run at the same time.
        seconds: The time limit of a call.
    """

    def __init__(self, run: Run, make_all: MakeAll[J], turns: int, seconds: float) -> None:
        self._run = run
        self._make_all = make_all
        self._most = turns
        self._seconds = seconds
        self._waiting: list[_Waiting[J]] = []
        self._under_way = 0
        self._tasks: set[asyncio.Task[None]] = set()  # the loop holds only weak references

    async def made(self, job: J) -> Any:
        """Run a call in a batch with others, and return its result.

        Raises:
            TimeoutError: The call took too long. A call that has started still runs to its end.
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
        finally:  # not in a callback of the task: calls made before the callback would wait forever
            self._under_way -= 1

    async def _turn(self) -> None:
        some = [one for one in self._waiting[:_MOST] if not one.future.done()]
        del self._waiting[:_MOST]
        if not some:
            return
        outcomes: Sequence[Any]
        try:
            # the batch has the deadline of its first call, so later calls wait a little less
            async with asyncio.timeout_at(some[0].until):
                outcomes = await self._run(partial(self._make_all, [one.job for one in some]))
        except Exception as error:  # noqa: BLE001 - each call of the batch gets the error
            outcomes = [error] * len(some)
        except BaseException:  # the loop is closing, and no call may be left waiting
            for one in some:
                one.future.cancel()
            raise
        for one, outcome in zip(some, outcomes, strict=True):
            if one.future.done():  # the caller does not wait any more
                continue
            if isinstance(outcome, Exception):
                one.future.set_exception(outcome)
            else:
                one.future.set_result(outcome)
