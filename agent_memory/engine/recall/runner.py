"""Calls to blocks: async ones from synchronous code, in parallel, and with time limits."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from functools import partial
from time import monotonic
from types import MappingProxyType
from typing import TypeVar

from agent_memory.core import threads
from agent_memory.core.processes import begin_anew_in_child, fork_safe_lock

T = TypeVar("T")

MOST_ABANDONED = 32
"""Maximum number of abandoned calls to a block that still run. Until one ends, none is started."""


def resolve(value: T | Awaitable[T]) -> T:
    """Return the value, or the result of awaiting it on a new event loop.

    Inside a running loop, another thread awaits it.

    Raises:
        RuntimeError: The coroutine cancelled itself. A `CancelledError` would look as if the
            caller's own task had been cancelled.
    """
    if not inspect.isawaitable(value):
        return value
    import asyncio

    async def result() -> T:
        return await value

    run = partial(_uncancelled, lambda: asyncio.run(result()))
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return run()
    return threads.start("resolve", run).result()


def together(calls: Sequence[Callable[[], T]]) -> list[T]:
    """Run all calls in parallel, the first on the caller's thread. Return the results in order.

    Raises:
        Exception: The first error, after all calls have ended.
    """
    if not calls:
        return []
    others = [threads.start("together", call) for call in calls[1:]]
    try:
        first = calls[0]()
    except Exception:
        wait(others)
        raise
    wait(others)
    return [first, *(future.result() for future in others)]


class TimeLimited:
    """Runs calls to blocks on daemon threads and waits for them within a limit.

    A call that takes longer is abandoned and continues: neither the caller nor the exit of the
    interpreter waits for it. While `MOST_ABANDONED` calls to a block continue, no further call is
    started. Calls that hang therefore cannot fill a process with threads.
    """

    def __init__(self) -> None:
        self._lock = fork_safe_lock()
        self._abandoned: Counter[str] = Counter()
        begin_anew_in_child(self, lambda limited: limited._abandoned.clear())

    def run(
        self, name: str, call: Callable[[], T], seconds: float, abandoned: Callable[[], None]
    ) -> T:
        """Return the call's result, if it arrives within the limit.

        Args:
            name: The block's name.
            call: Runs on a daemon thread.
            seconds: How long to wait.
            abandoned: Called on that thread when an abandoned call ends, with or without success.

        Raises:
            TimeoutError: It took longer, or too many abandoned calls to the block still run.
        """
        future = self._begin(name, call, abandoned)
        try:
            if not self._ended(name, future, seconds):
                raise TimeoutError(f"The block {name!r} took longer than {seconds:g} s.")
            return future.result()
        finally:
            self._abandon(name, future)

    def run_all(
        self,
        calls: Mapping[str, Callable[[], T]],
        timeout: float,
        timeouts: Mapping[str, float] = MappingProxyType({}),
    ) -> tuple[dict[str, T | Exception], list[str]]:
        """Run all calls in parallel and wait at most `timeout` seconds for each.

        Args:
            calls: The calls, by the name of the block.
            timeout: Seconds to wait for them.
            timeouts: Seconds to wait for particular blocks, by name. A result that is there when
                the longest wait ends counts, even if it was late.

        Returns:
            The result or the error of each call, in order, and the names of the abandoned calls.
        """
        begun = monotonic()
        futures = {name: self._begin(name, call, lambda: None) for name, call in calls.items()}
        outcomes: dict[str, T | Exception] = {}
        slow: list[str] = []
        try:
            for name, future in futures.items():
                left = begun + timeouts.get(name, timeout) - monotonic()
                if not self._ended(name, future, max(0.0, left)):
                    slow.append(name)
                    continue
                try:
                    outcomes[name] = future.result()
                except Exception as error:  # noqa: BLE001 - returned to the caller, who reports it
                    outcomes[name] = error
        finally:
            for name, future in futures.items():
                self._abandon(name, future)
        return outcomes, slow

    def _begin(self, name: str, call: Callable[[], T], abandoned: Callable[[], None]) -> Future[T]:
        with self._lock:
            full = self._abandoned[name] >= MOST_ABANDONED
        if full:
            refused: Future[T] = Future()
            refused.set_exception(
                TimeoutError(f"{MOST_ABANDONED} calls to it hang, so that no further one is made.")
            )
            return refused

        def ended() -> None:
            with self._lock:
                self._abandoned[name] -= 1
            abandoned()

        return threads.start(f"block-{name}", partial(_uncancelled, call), ended)

    def _ended(self, name: str, future: Future[T], seconds: float) -> bool:
        """Wait for a call and return whether it ended. Abandon it if it takes too long."""
        try:
            future.exception(seconds)
        except TimeoutError:  # of the wait; an error of the call would be returned
            return not self._abandon(name, future)
        return True

    def _abandon(self, name: str, future: Future[T]) -> bool:
        """Abandon a call unless it has ended. Return whether it is abandoned."""
        with self._lock:
            if not future.cancelled() and future.cancel():
                self._abandoned[name] += 1
            return future.cancelled()


def _uncancelled(call: Callable[[], T]) -> T:
    try:
        return call()
    except BaseException as error:
        from asyncio import CancelledError  # a slow import that few processes need

        if isinstance(error, CancelledError):
            raise RuntimeError("The block's own coroutine was cancelled.") from error
        raise
