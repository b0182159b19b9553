"""Running blocks: an async one from the sync engine, and any of them within a time limit."""

from __future__ import annotations

import inspect
import logging
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from time import monotonic
from types import MappingProxyType
from typing import TypeVar

from agent_memory.core.processes import begin_anew_in_child, fork_safe_lock

T = TypeVar("T")

logger = logging.getLogger(__name__)

MOST_STRAYS = 32
"""Calls to a block that may run on after they were given up; until one ends none is begun."""


def resolve(value: T | Awaitable[T]) -> T:
    """The value, or what awaiting it gives, on an event loop of its own.

    Safe inside a running loop too: then the awaiting is done by another thread.

    Raises:
        RuntimeError: What was awaited cancelled itself. Left as it is, that would look as if the
            caller's own task had been cancelled.
    """
    if not inspect.isawaitable(value):
        return value
    import asyncio

    async def result() -> T:
        return await value

    def run() -> T:
        return _uncancelled(lambda: asyncio.run(result()))

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return run()
    return _start("resolve", run, lambda: None).result()


def together(calls: Sequence[Callable[[], T]]) -> list[T]:
    """Make all calls at once, each on a thread; what they give, in order, or the first error."""
    if len(calls) < 2:
        return [call() for call in calls]
    futures = [_start("together", call, lambda: None) for call in calls]
    wait(futures)
    return [future.result() for future in futures]


class Runner:
    """Makes calls to blocks on daemon threads and waits for them within a limit.

    A call that takes longer is given up and runs on: it keeps neither the caller nor the
    interpreter from going on. Calls that hang for ever do not fill a process with threads: while
    `MOST_STRAYS` to a block run on, no further one is begun.
    """

    def __init__(self) -> None:
        self._lock = fork_safe_lock()
        self._strays: Counter[str] = Counter()
        begin_anew_in_child(self, lambda runner: runner._strays.clear())

    def gather(
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
            unfinished.
        """
        begun = monotonic()
        futures = {name: self._begin(name, call, lambda: None) for name, call in calls.items()}
        outcomes: dict[str, T | Exception] = {}
        slow: list[str] = []
        try:
            for name, future in futures.items():
                deadline = begun + timeouts.get(name, timeout)
                if not self._done(name, future, max(0.0, deadline - monotonic())):
                    slow.append(name)
                    continue
                try:
                    outcomes[name] = future.result()
                except Exception as error:  # noqa: BLE001 - handed to the caller, who names it
                    outcomes[name] = error
        finally:
            for name, future in futures.items():
                self._give_up(name, future)
        return outcomes, slow

    def limited(
        self, name: str, call: Callable[[], T], seconds: float, late: Callable[[], None]
    ) -> T:
        """The call's result, waited for at most so long.

        Args:
            name: The block's.
            call: Runs on a daemon thread.
            seconds: How long to wait.
            late: Run on that thread when the call comes to an end, good or bad, after it was given
                up.

        Raises:
            TimeoutError: It took longer; or too many calls to the block run on already.
        """
        future = self._begin(name, call, late)
        try:
            if not self._done(name, future, seconds):
                raise TimeoutError(f"The block {name!r} took longer than {seconds:g} s.")
            return future.result()
        finally:
            self._give_up(name, future)

    def _begin(self, name: str, call: Callable[[], T], late: Callable[[], None]) -> Future[T]:
        with self._lock:
            full = self._strays[name] >= MOST_STRAYS
        if full:
            refused: Future[T] = Future()
            refused.set_exception(
                TimeoutError(f"{MOST_STRAYS} calls to it hang, so that no further one is made.")
            )
            return refused

        def ended() -> None:
            with self._lock:
                self._strays[name] -= 1
            late()

        return _start(name, call, ended)

    def _done(self, name: str, future: Future[T], seconds: float) -> bool:
        """Wait for a call, and give it up if that takes too long."""
        done, _ = wait([future], seconds)
        return bool(done) or not self._give_up(name, future)

    def _give_up(self, name: str, future: Future[T]) -> bool:
        """Give a call up unless it has ended; whether it is given up."""
        with self._lock:
            if not future.cancelled() and future.cancel():
                self._strays[name] += 1
            return future.cancelled()


def _start(name: str, call: Callable[[], T], late: Callable[[], None]) -> Future[T]:
    """Run a call on a daemon thread; `late` is run there if the future was cancelled meanwhile."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            result = _uncancelled(call)
        except BaseException as error:  # noqa: BLE001 - handed to the caller, who raises it
            if future.set_running_or_notify_cancel():
                future.set_exception(error)
        else:
            if future.set_running_or_notify_cancel():
                future.set_result(result)
        try:
            if future.cancelled():
                late()
        except Exception:  # nobody waits for it any more
            logger.exception("what block %r did after it was given up was not undone", name)

    try:
        threading.Thread(target=run, daemon=True, name=f"block-{name}").start()
    except RuntimeError as error:  # there is no thread to be had
        future.set_exception(OSError(str(error)))
    return future


def _uncancelled(call: Callable[[], T]) -> T:
    try:
        return call()
    except BaseException as error:
        from asyncio import CancelledError  # imported late: it takes a while, and few need it

        if isinstance(error, CancelledError):
            raise RuntimeError("The block's own coroutine was cancelled.") from error
        raise
