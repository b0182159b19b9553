"""Reused daemon threads for calls that may hang. The process does not wait for them at exit.

A call gets an idle thread, or a new one if all are busy, so that no call waits for another. Each
call begins with an empty `contextvars` context, but with the caller's tracing span. Values in a
`threading.local` may be left from an earlier call.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import Context, ContextVar, copy_context
from functools import partial, wraps
from math import inf
from queue import Empty, SimpleQueue
from time import monotonic, sleep
from typing import Any, Generic, ParamSpec, TypeAlias, TypeVar

from agent_memory.core import tracing
from agent_memory.core.processes import begin_anew_in_child, fork_safe_lock, interrupts_a_holder
from agent_memory.errors import AgentMemoryError

P = ParamSpec("P")
T = TypeVar("T")

logger = logging.getLogger(__name__)

IDLE_SECONDS = 10.0
"""An idle thread stops after this time."""

_IDLE_NAME = "memory-idle"
_unwanted: ContextVar[Callable[[], bool]] = ContextVar("unwanted")
_UNHEARD_SECONDS = 0.5
"""`Handover.ended` waits in steps of this time, because Python handles signals between them."""

_Deliver: TypeAlias = Callable[[], None]
_Work: TypeAlias = Callable[[], _Deliver]


class Handover(Generic[T]):
    """A call on a daemon thread. The caller may wait for the outcome, or abandon the call.

    An abandoned call continues. Each operation of the caller is a single C call, so that an
    exception of a signal handler leaves nothing half done.

    Args:
        name: The name of the thread until the call ends.
        call: The call. In a signal handler that interrupted the holder of a lock, the call is made
            immediately, on the current thread.
        abandoned: Called on the call's thread when an abandoned call has ended or failed.
        context: The `contextvars` context of the call. None for an empty context.
    """

    def __init__(
        self,
        name: str,
        call: Callable[[], T],
        abandoned: Callable[[], None] = lambda: None,
        context: Context | None = None,
    ) -> None:
        self._name, self._call, self._abandoned = name, call, abandoned
        self._decided = threading.Lock()  # acquired when the call ends or is abandoned
        self._outcomes: SimpleQueue[Future[T]] = SimpleQueue()
        self._outcome: Future[T] | None = None
        self._span = tracing.here()
        work: Callable[[], _Deliver] = partial((context or Context()).run, self._run)
        if interrupts_a_holder():
            work()()
            return
        try:
            _threads.run(name, work)
        except RuntimeError as error:  # the system has no thread left, or the interpreter stops
            self._outcomes.put(failed(OSError(str(error))))

    def ended(self, seconds: float = inf) -> bool:
        """Wait at most `seconds` for the call to end. Return whether it ended."""
        deadline = monotonic() + seconds
        while self._outcome is None:
            left = max(0.0, min(deadline - monotonic(), _UNHEARD_SECONDS))
            try:
                self._outcome = self._outcomes.get(timeout=left)
            except Empty:
                if monotonic() >= deadline:
                    return False
        return True

    def result(self, seconds: float = inf) -> T:
        """Wait for the call to end, and return its result or raise its error.

        Raises:
            TimeoutError: The call takes longer than `seconds`.
            OSError: No thread could be started.
        """
        if not self.ended(seconds) or self._outcome is None:
            raise TimeoutError(f"The call {self._name!r} takes longer than {seconds:g} s.")
        return self._outcome.result()

    def abandon(self) -> bool:
        """Abandon the call. Return False if it has already ended or is abandoned."""
        return self._decided.acquire(blocking=False)

    def _run(self) -> _Deliver:
        _unwanted.set(self._decided.locked)
        outcome: Future[T] = Future()
        try:
            with tracing.within(self._span):
                outcome.set_result(self._call())
        except BaseException as error:  # noqa: BLE001 - handed to the caller, who raises it
            outcome.set_exception(error)
        if self._decided.acquire(blocking=False):
            return partial(self._outcomes.put, outcome)
        try:
            self._abandoned()
        except Exception:  # only logged, because the caller no longer waits
            logger.exception("the callback of the abandoned call %r failed", self._name)
        return lambda: None


def start(thread: threading.Thread) -> None:
    """Start a thread.

    If a signal handler's exception interrupts `Thread.start`, Python raises a RuntimeError about a
    lock. This function raises the handler's exception instead.

    Raises:
        RuntimeError: The system has no thread left, or the interpreter stops.
    """
    try:
        thread.start()
    except RuntimeError as error:
        if error.__context__ is not None and not isinstance(error.__context__, Exception):
            raise error.__context__ from None
        raise


def failed(error: BaseException) -> Future[Any]:
    outcome: Future[Any] = Future()
    outcome.set_exception(error)
    return outcome


def is_unwanted() -> bool:
    """Return whether the call that runs on this thread was abandoned, or its stream closed."""
    return unwanted()()


def unwanted() -> Callable[[], bool]:
    """Return a function that checks, on any thread, whether this thread's call was abandoned."""
    return _unwanted.get(lambda: False)


@contextmanager
def wanted_until(stopped: Callable[[], bool]) -> Iterator[None]:
    """Make `is_unwanted` return True in the body of the `with` as soon as `stopped` does."""
    outer = unwanted()
    token = _unwanted.set(lambda: stopped() or outer())
    try:
        yield
    finally:
        _unwanted.reset(token)


def off_main_thread(call: Callable[P, T]) -> Callable[P, T]:
    """Make a function run on another thread while the main thread waits.

    Exceptions of signal handlers (Ctrl-C, a time limit) can reach the main thread at any time. With
    this decorator, they interrupt only the wait. The call continues, and releases its resources,
    such as a lease. A signal handler may therefore wait for a resource that the call holds.

    Other threads run the function directly. A signal handler that interrupted the holder of a lock
    also runs the function directly: on another thread, the call might wait for the lock, while the
    handler waits for the call.
    """

    @wraps(call)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        if threading.current_thread() is not threading.main_thread() or interrupts_a_holder():
            return call(*args, **kwargs)
        bound = partial(call, *args, **kwargs)
        handover = Handover("memory-call", bound, context=copy_context())
        try:
            return handover.result()
        finally:
            handover.abandon()

    return run


@contextmanager
def repeated(name: str, seconds: float, call: Callable[[], bool]) -> Iterator[None]:
    """Make a call every `seconds` while the body of the `with` runs, until the call returns False.

    The calls have a thread of their own. An error of a call is logged. The end of the body waits
    for a running call. In a signal handler that interrupted the holder of a lock, no call is made:
    the call might wait for the lock, while the handler waits for the call.
    """
    if interrupts_a_holder():
        yield
        return
    ended, calling, process = threading.Event(), threading.Lock(), os.getpid()

    def repeat() -> None:
        is_wanted = True
        while is_wanted and not ended.wait(seconds):
            with calling:
                try:
                    is_wanted = not ended.is_set() and call()
                except Exception:
                    logger.exception("the repeated call %r failed and will be retried", name)

    Handover(name, repeat)
    try:
        yield
    finally:
        if os.getpid() == process:  # a forked child does not have the thread
            ended.set()
            with calling:
                pass


_Jobs: TypeAlias = SimpleQueue[tuple[str, _Work]]


class _Threads:
    """The reused threads of this process. A forked child begins without threads."""

    def __init__(self) -> None:
        self._lock = fork_safe_lock()
        self._idle: list[_Jobs] = []  # one queue for each idle thread, the most recently busy last
        begin_anew_in_child(self, lambda threads: threads._idle.clear())

    def run(self, name: str, work: _Work) -> None:
        with self._lock:
            jobs = self._idle.pop() if self._idle else None
        if jobs is not None:
            jobs.put((name, work))
            return
        jobs = SimpleQueue()
        # Not passed as an argument, because a thread references its arguments until it stops.
        jobs.put((name, work))
        thread = threading.Thread(target=self._serve, args=(jobs,), name=_IDLE_NAME, daemon=True)
        start(thread)

    def _serve(self, jobs: _Jobs) -> None:
        thread = threading.current_thread()
        while True:
            try:
                name, work = jobs.get(timeout=IDLE_SECONDS)
            except Empty:
                with self._lock:
                    if jobs in self._idle:
                        self._idle.remove(jobs)
                        return
                continue  # `run` has popped this queue, and is about to put a call
            thread.name = name
            deliver = work()
            thread.name = _IDLE_NAME
            with self._lock:  # before the delivery: the caller's next call may then use this thread
                self._idle.append(jobs)
            deliver()
            del work, deliver  # an idle thread holds no references


_threads = _Threads()


_MOST_KEYS = 10_000
_LATER_SECONDS = 0.2  # delay, so that a process that exits soon loads no encoder


class EncodeAhead:
    """Encodes stored messages on one background thread, before a question needs them.

    After `stop` nothing is lost: a question encodes the messages that are not encoded yet.
    """

    def __init__(self) -> None:
        self._lock = fork_safe_lock()
        self._begin()
        begin_anew_in_child(self, EncodeAhead._begin)

    def _begin(self) -> None:
        self._waiting: OrderedDict[Hashable, Callable[[], bool]] = OrderedDict()
        self._runs = self._stopped = False

    def add(self, key: Hashable, encode: Callable[[], bool]) -> None:
        """Schedule a call of `encode`, which encodes messages.

        The call is repeated while it returns True. It replaces an earlier call for the same key.
        After `stop`, and while 10,000 keys have pending calls, a new call is ignored.
        """
        with self._lock:
            if self._stopped or len(self._waiting) >= _MOST_KEYS:
                return
            self._waiting[key] = encode
            runs, self._runs = self._runs, True
        if not runs:
            Handover("memory-encoder", self._run)

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            self._waiting.clear()

    def _run(self) -> None:
        sleep(_LATER_SECONDS)
        while True:
            with self._lock:
                if not self._waiting:
                    self._runs = False
                    return
                key, encode = self._waiting.popitem(last=False)
            more = False
            try:
                more = encode()
            except AgentMemoryError as error:  # the next question meets the same error
                logger.info("new messages are not encoded yet: %s", error)
            except Exception:  # the thread continues with other keys
                logger.exception("new messages are not encoded yet")
            with self._lock:
                if more and not self._stopped:
                    self._waiting.setdefault(key, encode)
