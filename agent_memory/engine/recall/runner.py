"""Running calls to blocks: an async one from the sync engine, and any of them in limited time."""

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
"""Calls to a block that may run on after they were abandoned; until one ends none is begun."""


def resolve(value: T | Awaitable[T]) -> T:
    """The value, or what awaiting it gives, on an event loop of its own.

    Safe inside a running loop too: then another thread awaits it.

    Raises:
        RuntimeError: What was awaited cancelled itself. Left as it is, that would look as if the
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
    """Make all calls at once, the first on the caller's thread; their results, in order.

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
    """Makes calls to blocks on daemon threads and waits for them within a limit.

    A call that takes longer is abandoned and runs on: neither the caller nor the end of the
    interpreter waits for it. Calls that hang for ever do not fill a process with threads: while
    `MOST_ABANDONED` to a block run on, no further one is begun.
    """

    def __init__(self) -> None:
        self._lock = fork_safe_lock()
        self._abandoned: Counter[str] = Counter()
        begin_anew_in_child(self, lambda limited: limited._abandoned.clear())

    def run(
        self, name: str, call: Callable[[], T], seconds: float, abandoned: Callable[[], None]
    ) -> T:
        """The call's result, waited for at most so long.

        Args:
            name: The block's.
            call: Runs on a daemon thread.
            seconds: How long to wait.
            abandoned: Called on that thread when the call ends, good or bad, after it was
                abandoned.

        Raises:
            TimeoutError: It took longer; or too many abandoned calls to the block run on already.
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
        """Make all calls at once and wait at most `timeout` seconds for each of them.

        Args:
            calls: By the block's name.
            timeout: Seconds to wait for them.
            timeouts: By the block's name, the seconds of those that are waited for less or more.
                What is there by the time that the slowest is waited for counts, late or not.

        Returns:
            What each call gave or raised, in the order of `calls`; and the names of those
            abandoned.
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
                except Exception as error:  # noqa: BLE001 - handed to the caller, who names it
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
        """Wait for a call, and abandon it if that takes too long."""
        try:
            future.exception(seconds)
        except TimeoutError:  # of the waiting: the call's own would be returned
            return not self._abandon(name, future)
        return True

    def _abandon(self, name: str, future: Future[T]) -> bool:
        """Abandon a call unless it has ended; whether it is abandoned."""
        with self._lock:
            if not future.cancelled() and future.cancel():
                self._abandoned[name] += 1
            return future.cancelled()


def _uncancelled(call: Callable[[], T]) -> T:
    try:
        return call()
    except BaseException as error:
        from asyncio import CancelledError  # imported late: it takes a while, and few need it

        if isinstance(error, CancelledError):
            raise RuntimeError("The block's own coroutine was cancelled.") from error
        raise
