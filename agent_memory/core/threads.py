"""Reused daemon threads for calls that may hang. The process does not wait for them at exit.

A call gets an idle thread, or a new one if all are busy, so that no call waits for another. An
idle thread stops after a while. Each call begins with an empty context, as on a new thread, but
keeps its tracing span. Values in a `threading.local` may be left from an earlier call.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass
from functools import partial, wraps
from queue import Empty, SimpleQueue
from time import monotonic
from typing import ParamSpec, TypeAlias, TypeVar

from agent_memory.core import tracing
from agent_memory.core.processes import begin_anew_in_child, fork_safe_lock, holds_a_lock

P = ParamSpec("P")
T = TypeVar("T")

logger = logging.getLogger(__name__)

IDLE_SECONDS = 10.0
"""The seconds after which an idle thread stops."""

_IDLE_NAME = "memory-idle"
_unwanted: ContextVar[Callable[[], bool]] = ContextVar("unwanted")
_LATE_SECONDS = 60.0
_UNHEARD_SECONDS = 0.5
"""The seconds between two checks of the waiting main thread.

A signal that arrives just before the wait does not wake it.
"""

_Deliver: TypeAlias = Callable[[], None]
_Work: TypeAlias = Callable[[], _Deliver]


def start(
    name: str, call: Callable[[], T], abandoned: Callable[[], None] = lambda: None
) -> Future[T]:
    """Run a call on a daemon thread, which has this name until the call ends.

    The future can be cancelled until the call ends. The call then runs on, and `abandoned` is
    called after it on the same thread, whether it succeeded or failed. If a signal handler
    interrupted the holder of a lock, the call is made immediately, on the handler's thread.

    Returns:
        A future with the call's result or error; an OSError if no thread could be started.
    """
    future: Future[T] = Future()
    here = tracing.here()

    def run() -> _Deliver:
        deliver: _Deliver
        _unwanted.set(future.cancelled)
        try:
            with tracing.within(here):
                deliver = partial(future.set_result, call())
        except BaseException as error:  # noqa: BLE001 - handed to the caller, who raises it
            deliver = partial(future.set_exception, error)
        if future.set_running_or_notify_cancel():
            return deliver
        try:
            abandoned()
        except Exception:  # the caller no longer waits for it
            logger.exception("what followed the abandoned call %r failed", name)
        return lambda: None

    if holds_a_lock():  # as in `apart`
        Context().run(run)()
        return future
    try:
        _threads.run(name, run)
    except RuntimeError as error:  # the system has no thread left, or the interpreter stops
        future.set_exception(OSError(str(error)))
    return future


def given_up() -> bool:
    """Return whether no caller waits any longer for the call that runs on this thread."""
    return unwanted()()


def unwanted() -> Callable[[], bool]:
    """Return the check of `given_up` for this thread's call, for its parts on other threads."""
    return _unwanted.get(lambda: False)


def apart(call: Callable[P, T]) -> Callable[P, T]:
    """Make the main thread run a call on another thread, and wait for it.

    Signal exceptions (Ctrl-C, a time limit) reach the main thread between any two steps. They
    interrupt only its wait, and not the call: a lease that was taken is released. A signal handler
    that waits for a resource of the interrupted call gets it, because the call continues. A
    handler's own call is made on its thread if that thread holds a lock. Otherwise the other
    thread might wait for the lock, and the handler for the thread.
    """

    @wraps(call)
    def run_apart(*args: P.args, **kwargs: P.kwargs) -> T:
        if threading.current_thread() is not threading.main_thread() or holds_a_lock():
            return call(*args, **kwargs)
        done: SimpleQueue[Future[T]] = SimpleQueue()
        waiting, context = threading.Lock(), copy_context()
        context.run(_unwanted.set, lambda: not waiting.locked())
        run = partial(context.run, call, *args, **kwargs)
        with waiting:  # taken, waited for and released in single steps
            try:
                _threads.run("memory-call", lambda: partial(done.put, _outcome(run)))
            except RuntimeError:  # the system has no thread left, or the interpreter stops
                return call(*args, **kwargs)
            while True:
                try:
                    return done.get(timeout=_UNHEARD_SECONDS).result()
                except Empty:
                    continue

    return run_apart


def _outcome(call: Callable[[], T]) -> Future[T]:
    """Return a future with the result or the error of a call."""
    outcome: Future[T] = Future()
    try:
        outcome.set_result(call())
    except BaseException as error:  # noqa: BLE001 - handed to the caller, who raises it
        outcome.set_exception(error)
    return outcome


@contextmanager
def repeated(name: str, seconds: float, call: Callable[[], bool]) -> Iterator[None]:
    """Make a call every `seconds` while the body runs, until the call returns False.

    Each call has its own thread, so that a call that hangs delays no other. A body shorter than
    `seconds` makes no call. It starts no thread if one already watches other repeated calls. The
    end of the body waits for a call under way.

    Nothing is repeated on a thread that holds a lock: the call might wait for the lock, and the
    thread for the call. This is a signal handler that interrupted work under the lock.

    Args:
        name: The name of the call's thread.
        seconds: The seconds from the beginning, or from the end of a call, to the next call.
        call: The function to call. An error is logged, and the call is repeated.
    """
    if holds_a_lock():
        yield
        return
    repeated_call = _Repeated(name, seconds, call, monotonic() + seconds)
    try:
        _repeater.add(repeated_call)
        yield
    finally:
        _repeater.remove(repeated_call)


_Jobs: TypeAlias = SimpleQueue[tuple[str, _Work]]


class _Threads:
    """The idle threads of this process. A forked child begins with none."""

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
        jobs.put((name, work))  # not an argument, because the thread would hold it until it stops
        thread = threading.Thread(target=self._serve, args=(jobs,), name=_IDLE_NAME, daemon=True)
        thread.start()

    def _serve(self, jobs: _Jobs) -> None:
        thread, awaited = threading.current_thread(), False
        while True:
            try:
                name, work = jobs.get(timeout=_LATE_SECONDS if awaited else IDLE_SECONDS)
            except Empty:
                with self._lock:
                    if jobs in self._idle:
                        self._idle.remove(jobs)
                        return
                if awaited:  # a signal interrupted the thread that was about to put a call
                    return
                awaited = True  # a call is on its way
                continue
            awaited = False
            thread.name = name
            deliver = Context().run(work)
            thread.name = _IDLE_NAME
            with self._lock:  # before the caller continues: its next call finds this thread idle
                self._idle.append(jobs)
            deliver()
            del work, deliver  # an idle thread holds no references


@dataclass(eq=False, slots=True)
class _Repeated:
    name: str
    seconds: float
    call: Callable[[], bool]
    due: float
    running: bool = False


class _Repeater:
    """Starts all repeated calls of this process, from one thread that stops when there are none."""

    def __init__(self) -> None:
        self._all: set[_Repeated] = set()
        self._begin()
        begin_anew_in_child(self, _Repeater._begin)

    def _begin(self) -> None:
        for repeated in self._all:  # the body continues in a forked child, its calls do not
            repeated.running = False
        self._all = set()
        self._changed = threading.Condition(fork_safe_lock())
        self._look_at: float | None = None  # None: no thread looks

    def add(self, repeated: _Repeated) -> None:
        try:
            with self._changed:
                self._all.add(repeated)
                looks = self._look_at is not None
                if self._look_at is None or repeated.due < self._look_at:
                    self._look_at = repeated.due
                    self._changed.notify_all()
            if not looks:
                start("memory-repeater", self._look).add_done_callback(self._looked)
        except BaseException:  # Ctrl-C, perhaps before a thread looks; two lookers do no harm
            self._nobody_looks()
            raise

    def remove(self, repeated: _Repeated) -> None:
        with self._changed:
            self._all.discard(repeated)
            self._changed.wait_for(lambda: not repeated.running)

    def _look(self) -> None:
        while True:
            with self._changed:
                now = monotonic()
                due = [
                    repeated
                    for repeated in self._all
                    if repeated.due <= now and not repeated.running
                ]
                for repeated in due:
                    repeated.running = True
                if not self._all:
                    self._look_at = None
                    return
                if not due:
                    ahead = [
                        now + repeated.seconds if repeated.running else repeated.due
                        for repeated in self._all
                    ]
                    self._look_at = min(ahead)
                    self._changed.wait(self._look_at - now)
            self._call(due)

    def _looked(self, future: Future[None]) -> None:
        if future.exception() is not None:  # no thread could be started: the next `add` tries again
            self._nobody_looks()

    def _nobody_looks(self) -> None:
        with self._changed:
            self._look_at = None

    def _call(self, due: list[_Repeated]) -> None:
        for repeated in due:
            start(repeated.name, repeated.call).add_done_callback(partial(self._called, repeated))

    def _called(self, repeated: _Repeated, future: Future[bool]) -> None:
        error = future.exception()
        with self._changed:
            repeated.running, repeated.due = False, monotonic() + repeated.seconds
            if error is None and not future.result():
                self._all.discard(repeated)
            self._changed.notify_all()
        if error is not None:
            logger.error(
                "the repeated call %r failed and will be retried", repeated.name, exc_info=error
            )


_threads = _Threads()
_repeater = _Repeater()
