"""A queue of appends: one thread appends the messages of waiting threads in batches."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from agent_memory.core.processes import begin_anew_in_child, checked_lock, is_own
from agent_memory.errors import StoreUnavailable

J = TypeVar("J")
T = TypeVar("T")

_MOST = 32
"""The maximum number of calls in one batch. Every call waits until its whole batch is done."""

_CUT_OFF = (
    "The thread that wrote this message in a batch was interrupted: the message may be stored. "
    "Read the session's log, or retry with the same key."
)


class _Pending(Generic[J, T]):
    """A pending call. Its outcome is None until the call has run."""

    __slots__ = ("job", "outcome")

    def __init__(self, job: J) -> None:
        self.job = job
        self.outcome: T | Exception | None = None


class AppendQueue(Generic[J, T]):
    """Runs short calls one at a time. Calls that wait at the same time run as one batch.

    A signal handler may raise an exception in the main thread at any time. The main thread
    therefore runs only its own call, so that no other thread's call is lost.

    Args:
        make: Runs one call.
        make_all: Runs several calls and returns the result or the error of each.
    """

    def __init__(
        self, make: Callable[[J], T], make_all: Callable[[Sequence[J]], Sequence[T | Exception]]
    ) -> None:
        self._make = make
        self._make_all = make_all
        self._begin_anew()
        begin_anew_in_child(self, AppendQueue._begin_anew)

    def _begin_anew(self) -> None:
        self._main = threading.main_thread().ident
        self._lock = checked_lock()  # a signal handler may append while the lock is held
        self._pending: list[_Pending[J, T]] = []

    def run(self, job: J) -> T:
        """Run a call, alone or in a batch, and return its result."""
        lock = self._lock
        if threading.get_ident() == self._main or is_own(lock):
            with lock:
                return self._make(job)
        # the fast path: no call is pending
        if not self._pending and lock.acquire(blocking=False):
            try:
                return self._make(job)
            finally:
                lock.release()
        mine = _Pending[J, T](job)
        self._pending.append(mine)
        # the thread that gets the lock runs batches until its own call is done
        with lock:
            while mine.outcome is None:
                self._lead()
        if isinstance(mine.outcome, Exception):
            raise mine.outcome
        return mine.outcome

    def _lead(self) -> None:
        calls = self._pending[:_MOST]
        del self._pending[: len(calls)]
        try:
            for call, outcome in zip(calls, self._outcomes(calls), strict=True):
                call.outcome = outcome
        finally:
            for call in calls:
                if call.outcome is None:
                    call.outcome = StoreUnavailable(_CUT_OFF)

    def _outcomes(self, calls: Sequence[_Pending[J, T]]) -> Sequence[T | Exception]:
        if len(calls) > 1:
            return self._make_all([call.job for call in calls])
        try:
            return [self._make(call.job) for call in calls]
        except Exception as error:  # noqa: BLE001 - the thread of the call raises it
            return [error]
