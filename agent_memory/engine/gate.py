"""Where threads wait to append: one goes through at a time, and takes with it who waits meanwhile.

Each call into C (a tokenizer, SQLite) lets go of the interpreter for some microseconds. Where other
threads wait to take it meanwhile, getting it back takes longer than the call. Threads that wait at
a gate don't. And what they wait with is appended by the one that is inside, in one transaction:
where each commit waits for the disk, eight threads append up to three times as much.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from agent_memory.core.processes import begin_anew_in_child, is_own, known_lock
from agent_memory.errors import StoreUnavailable

J = TypeVar("J")
T = TypeVar("T")

_MOST = 32
"""Calls that are made together: the first of them waits for the last."""

_CUT_OFF = (
    "The thread that was writing this message together with its own was interrupted: it may be "
    "stored. Read the session's log, or retry with the same key."
)


class _Waiting(Generic[J, T]):
    """A call that waits, and what came of it."""

    __slots__ = ("error", "is_made", "job", "result")

    result: T

    def __init__(self, job: J) -> None:
        self.job = job
        self.error: Exception | None = None
        self.is_made = False

    def made(self, outcome: T | Exception) -> None:
        """Note what came of it."""
        if isinstance(outcome, Exception):
            self.error = outcome
        else:
            self.result = outcome
        self.is_made = True


class Gate(Generic[J, T]):
    """Makes brief calls one at a time, and those that wait at the same time together.

    Exceptions of signals come to the main thread, between any two steps. So it makes its own calls,
    alone: nobody else's are in its hands, and none of its own goes on after it was interrupted.

    Args:
        make: Makes a call.
        make_all: Makes several; gives for each what comes of it, or its error.
    """

    def __init__(
        self, make: Callable[[J], T], make_all: Callable[[Sequence[J]], Sequence[T | Exception]]
    ) -> None:
        self._make = make
        self._make_all = make_all
        self._begin_anew()
        begin_anew_in_child(self, Gate._begin_anew)

    def _begin_anew(self) -> None:
        self._main = threading.main_thread().ident
        self._lock = known_lock()  # a signal's handler may append meanwhile
        self._waiting: list[_Waiting[J, T]] = []

    def made(self, job: J) -> T:
        """What comes of a call, once it is made."""
        lock = self._lock
        if threading.get_ident() == self._main or is_own(lock):
            with lock:
                return self._make(job)
        # Where nobody waits, as nearly always. Else who comes first takes along those that were
        # there before: they are woken to what is done, rather than to their turn.
        if not self._waiting and lock.acquire(blocking=False):
            try:
                return self._make(job)
            finally:
                lock.release()
        mine = _Waiting[J, T](job)
        self._waiting.append(mine)
        with lock:
            while not mine.is_made:
                self._lead()
        if mine.error is not None:
            raise mine.error
        return mine.result

    def _lead(self) -> None:
        """Make calls that wait, those that came first."""
        some = self._waiting[:_MOST]
        del self._waiting[: len(some)]
        try:
            for one, outcome in zip(some, self._outcomes(some), strict=True):
                one.made(outcome)
        finally:
            for one in some:
                if not one.is_made:
                    one.made(StoreUnavailable(_CUT_OFF))

    def _outcomes(self, some: Sequence[_Waiting[J, T]]) -> Sequence[T | Exception]:
        if len(some) > 1:
            return self._make_all([one.job for one in some])
        try:
            return [self._make(one.job) for one in some]
        except Exception as error:  # noqa: BLE001 - raised to whoever asked
            return [error]
