"""Calls to blocks from synchronous code: async, in parallel, with a time limit, with pauses."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from time import monotonic
from types import MappingProxyType
from typing import TypeVar

from agent_memory.core.processes import begin_anew_in_child, fork_safe_lock
from agent_memory.core.threads import Handover, failed, is_unwanted
from agent_memory.ltm_blocks.base import QueryThread

T = TypeVar("T")

MOST_ABANDONED = 32
"""No new call to a block starts while this number of abandoned calls to it still run."""


def resolve(value: T | Awaitable[T]) -> T:
    """Return the value. If it is awaitable, await it on a new event loop and return the result.

    If the calling thread has a running loop, another thread awaits the value. A `CancelledError`
    becomes a `RuntimeError`, because it would tell the caller that its own task was cancelled.
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
    return Handover("resolve", run).result()


def in_parallel(calls: Sequence[Callable[[], T]]) -> list[T]:
    """Run all calls in parallel, the first on the caller's thread. Return the results in order.

    If calls fail, the first error is raised after all calls have ended.
    """
    if not calls:
        return []
    others = [Handover("parallel", call) for call in calls[1:]]
    try:
        first = calls[0]()
    finally:
        for other in others:
            other.ended()
    return [first, *(other.result() for other in others)]


class TimeLimited:
    """Runs calls to blocks on daemon threads, each with a time limit.

    A call that takes longer is abandoned. The call continues, but neither the caller nor the exit
    of the interpreter waits for the call. `MOST_ABANDONED` limits the number of threads that hang.
    """

    def __init__(self) -> None:
        self._lock = fork_safe_lock()
        self._abandoned: Counter[str] = Counter()
        begin_anew_in_child(self, lambda limited: limited._abandoned.clear())

    def run(
        self, name: str, call: Callable[[], T], seconds: float, abandoned: Callable[[], None]
    ) -> T:
        """Run a call, and return its result. If the call is abandoned, call `abandoned` at its end.

        Raise `TimeoutError` if the call takes longer than `seconds`, or if too many abandoned calls
        still run.
        """
        handover = self._begin(name, partial(_uncancelled, call), abandoned)
        try:
            if not handover.ended(seconds) and self._abandon(name, handover):
                raise TimeoutError(f"The block {name!r} took longer than {seconds:g} s.")
            return handover.result()
        finally:
            self._abandon(name, handover)

    def run_all(
        self,
        calls: Mapping[str, Callable[[], T]],
        timeout: float,
        timeouts: Mapping[str, float] = MappingProxyType({}),
        threads: Mapping[str, QueryThread] = MappingProxyType({}),
    ) -> tuple[dict[str, T | Exception], list[str]]:
        """Run all calls in parallel, each with a time limit.

        Return the results and errors of the calls that ended, and the names of the abandoned calls.
        `timeouts` has other time limits of single blocks. A late result still counts if it arrives
        before the longest limit ends. `threads` has the threads of single blocks; see
        `Block.query_thread`. Calls on the caller's thread have no limit.
        """
        begun = monotonic()
        lanes: dict[str, list[str]] = {}
        for name in calls:
            thread = threads.get(name, "own")
            lanes.setdefault(name if thread == "own" else f"({thread})", []).append(name)
        here = lanes.pop("(caller)", [])
        ended: dict[str, Future[T]] = {}
        handovers: dict[str, Handover[None]] = {}
        try:
            for lane, names in lanes.items():
                run = partial(_run_lane, names, calls, ended)
                try:
                    handovers[lane] = self._begin(lane, run, lambda: None)
                except TimeoutError as error:
                    ended |= dict.fromkeys(names, failed(error))
            _run_lane(here, calls, ended)
            for lane, handover in handovers.items():
                names = lanes[lane]
                left = begun + max(timeouts.get(name, timeout) for name in names) - monotonic()
                if handover.ended(left) or not self._abandon(lane, handover):
                    try:
                        handover.result()
                    except OSError as error:  # no thread could be started
                        ended |= dict.fromkeys(names, failed(error))
        finally:
            for lane, handover in handovers.items():
                self._abandon(lane, handover)
        outcomes: dict[str, T | Exception] = {}
        for name in filter(ended.__contains__, calls):
            try:
                outcomes[name] = ended[name].result()
            except Exception as error:  # noqa: BLE001 - the caller reports it
                outcomes[name] = error
        return outcomes, [name for name in calls if name not in outcomes]

    def _begin(self, name: str, call: Callable[[], T], on_end: Callable[[], None]) -> Handover[T]:
        with self._lock:
            if self._abandoned[name] >= MOST_ABANDONED:
                raise TimeoutError(f"{MOST_ABANDONED} earlier calls still hang. No call is made.")

        def ended() -> None:
            with self._lock:
                self._abandoned[name] -= 1
            on_end()

        return Handover(f"block-{name}", call, ended)

    def _abandon(self, name: str, handover: Handover[T]) -> bool:
        """Abandon a call. Return False if it has ended or was abandoned before."""
        with self._lock:
            is_abandoned = handover.abandon()
            self._abandoned[name] += is_abandoned
            return is_abandoned


def _run_lane(
    names: Sequence[str], calls: Mapping[str, Callable[[], T]], ended: dict[str, Future[T]]
) -> None:
    for name in names:
        outcome: Future[T] = Future()
        try:
            outcome.set_result(calls[name]())
        except BaseException as error:  # noqa: BLE001 - the caller's thread raises it
            outcome.set_exception(_not_cancelled(error))
        ended[name] = outcome
        if is_unwanted():
            return


def _uncancelled(call: Callable[[], T]) -> T:
    try:
        return call()
    except BaseException as error:
        if (other := _not_cancelled(error)) is error:
            raise
        raise other from error


def _not_cancelled(error: BaseException) -> BaseException:
    """Return a `RuntimeError` in place of a `CancelledError`, and any other error unchanged."""
    from asyncio import CancelledError  # a slow import that few processes need

    if not isinstance(error, CancelledError):
        return error
    return RuntimeError("The block's own coroutine was cancelled.")


LONGEST_REST = 300.0
"""The maximum pause in seconds."""


class Backoff:
    """Counts failures by name, and determines when the next attempt is due.

    The first failure causes no pause. Further failures cause pauses of 4, 8, 16 ... seconds.
    """

    def __init__(self) -> None:
        self._failures: dict[Hashable, int] = {}
        self._until: dict[Hashable, float] = {}

    def ready(self, *names: Hashable) -> bool:
        """Return whether none of these names is paused."""
        return not self.seconds(*names)

    def seconds(self, *names: Hashable) -> float:
        """Return the seconds until none of these names is paused: 0 if none is paused now."""
        return max(0.0, max(self._until.get(name, 0.0) for name in names) - monotonic())

    def idle(self, name: Hashable) -> bool:
        """Return whether the newest attempt with this name succeeded, or none has failed yet."""
        return name not in self._failures

    def failed(self, name: Hashable) -> None:
        """Count a failure. Each failure after the first begins a pause."""
        failures = self._failures[name] = self._failures.get(name, 0) + 1
        if failures > 1:
            self._until[name] = monotonic() + min(2.0 ** min(failures, 60), LONGEST_REST)

    def pause(self, name: Hashable, seconds: float) -> None:
        """Pause a name without counting a failure."""
        self._until[name] = monotonic() + seconds

    def succeeded(self, *names: Hashable) -> None:
        for name in names:
            self._failures.pop(name, None)
            self._until.pop(name, None)
