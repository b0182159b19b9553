"""Batching: short calls that are pending at the same time run together on one thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from agent_memory.aio import Run

J = TypeVar("J")

_MOST = 32
"""The maximum size of a batch. A batch's first call waits until the last call is done."""

RunBatch: TypeAlias = Callable[[Sequence[J]], Sequence[Any]]
"""Runs a batch of calls, and returns a result or an error for each call."""


class _Pending(NamedTuple, Generic[J]):
    job: J
    future: asyncio.Future[Any]
    until: float


class Batcher(Generic[J]):
    """Batches short calls. For one event loop only.

    A call starts immediately if fewer than `parallel` batches run. Otherwise it joins the next
    batch. A thread for each call would be several times slower, because the threads compete for the
    interpreter lock.
    """

    def __init__(self, run: Run, run_batch: RunBatch[J], parallel: int, seconds: float) -> None:
        self._run = run
        self._run_batch = run_batch
        self._most = parallel
        self._seconds = seconds
        self._pending: list[_Pending[J]] = []
        self._under_way = 0
        self._tasks: set[asyncio.Task[None]] = set()  # the loop holds only weak references

    async def run(self, job: J) -> Any:
        """Run a call, in a batch with other calls if possible, and return its result.

        After a `TimeoutError`, a call that has started still runs to its end.
        """
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        self._pending.append(_Pending(job, future, loop.time() + self._seconds))
        if self._under_way < self._most:
            self._under_way += 1
            task = asyncio.ensure_future(self._run_batches())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return await future

    async def _run_batches(self) -> None:
        try:
            while self._pending:
                await self._run_next()
        finally:  # not in a callback: calls made before the callback would wait forever
            self._under_way -= 1

    async def _run_next(self) -> None:
        batch = [call for call in self._pending[:_MOST] if not call.future.done()]
        del self._pending[:_MOST]
        if not batch:
            return
        outcomes: Sequence[Any]
        try:
            # the batch has the deadline of its first call, so later calls wait a little less
            async with asyncio.timeout_at(batch[0].until):
                outcomes = await self._run(partial(self._run_batch, [call.job for call in batch]))
        except Exception as error:  # noqa: BLE001 - each call of the batch gets the error
            outcomes = [error] * len(batch)
        except BaseException:  # the loop is closing, and no call may be left waiting
            for call in batch:
                call.future.cancel()
            raise
        for call, outcome in zip(batch, outcomes, strict=True):
            if call.future.done():  # the caller no longer waits
                continue
            if isinstance(outcome, Exception):
                call.future.set_exception(outcome)
            else:
                call.future.set_result(outcome)
