"""Daemon threads that are used again, for calls that may hang: nobody waits for them at exit.

A call gets an idle thread, or a new one where all are busy, so that no call waits for another. A
thread that has had nothing to do for a while ends. Each call begins with an empty context, as on a
thread of its own, but for the span that it is a part of; what it leaves in a `threading.local` a
later call may find.
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
"""How long a thread without a call is kept."""

_IDLE_NAME = "memory-idle"
_unwanted: ContextVar[Callable[[], bool]] = ContextVar("unwanted")
_LATE_SECONDS = 60.0
_UNHEARD_SECONDS = 0.5
"""A signal that comes while the main thread is about to wait does not wake it: it looks again."""

_Deliver: TypeAlias = Callable[[], None]
_Work: TypeAlias = Callable[[], _Deliver]


def start(
    name: str, call: Callable[[], T], abandoned: Callable[[], None] = lambda: None
) -> Future[T]:
    """Run a call on a daemon thread, which has this name until the call ends.

    The future can be cancelled until the call ends. The call runs on then, and `abandoned` is
    called after it on the same thread, whether the call succeeded or failed. Where a signal's
    handler interrupted who holds a lock, the call is made at once, on the handler's thread.

    Returns:
        What the call gives or raises; an OSError where no thread could be started.
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
        except Exception:  # nobody waits for it any more
            logger.exception("what followed the abandoned call %r failed", name)
        return lambda: None

    if holds_a_lock():  # as in `apart`
        Context().run(run)()
        return future
    try:
        _threads.run(name, run)
    except RuntimeError as error:  # the system has no thread left, or the interpreter ends
        future.set_exception(OSError(str(error)))
    return future


def given_up() -> bool:
    """Whether nobody waits any more for the call that another thread left to this one."""
    return unwanted()()


def unwanted() -> Callable[[], bool]:
    """`given_up` of this thread's call, for the parts of it that run on others."""
    return _unwanted.get(lambda: False)


def apart(call: Callable[P, T]) -> Callable[P, T]:
    """A call that the main thread leaves to another one, and waits for.

    The exceptions of signals (Ctrl-C, a time limit) come to the main thread, between any two steps.
    They end its waiting, and cut nothing off: who has taken a lease gives it back. A signal's
    handler that waits for what the interrupted call holds gets it, for that goes on meanwhile. A
    handler's own call that comes while its thread holds a lock is made here: the other thread might
    wait for the lock, and the handler for the thread.
    """

    @wraps(call)
    def made(*args: P.args, **kwargs: P.kwargs) -> T:
        if threading.current_thread() is not threading.main_thread() or holds_a_lock():
            return call(*args, **kwargs)
        done: SimpleQueue[Future[T]] = SimpleQueue()
        waiting, context = threading.Lock(), copy_context()
        context.run(_unwanted.set, lambda: not waiting.locked())
        run = partial(context.run, call, *args, **kwargs)
        with waiting:  # taken, waited for and let go in single steps
            try:
                _threads.run("memory-call", lambda: partial(done.put, _outcome(run)))
            except RuntimeError:  # the system has no thread left, or the interpreter ends
                return call(*args, **kwargs)
            while True:
                try:
                    return done.get(timeout=_UNHEARD_SECONDS).result()
                except Empty:
                    continue

    return made


def _outcome(call: Callable[[], T]) -> Future[T]:
    """What a call gave or raised."""
    outcome: Future[T] = Future()
    try:
        outcome.set_result(call())
    except BaseException as error:  # noqa: BLE001 - handed to the caller, who raises it
        outcome.set_exception(error)
    return outcome


@contextmanager
def repeated(name: str, seconds: float, call: Callable[[], bool]) -> Iterator[None]:
    """Make a call every so many seconds while the body runs, until the call returns False.

    Each call has a thread of its own, so that one that hangs delays no other. What lasts less than
    `seconds` makes no call, and starts no thread where one looks after others already. The end
    of the body waits for a call under way.

    Who holds a lock repeats nothing: a call might wait for the lock, and he for the call. It is a
    signal's handler, which interrupted others that work under the lock.

    Args:
        name: Of the call's thread.
        seconds: How long after the beginning, and after the end of a call, the next one begins.
        call: What to call. An error is logged, and the call is made again.
    """
    if holds_a_lock():
        yield
        return
    one = _Repeated(name, seconds, call, monotonic() + seconds)
    try:
        _repeater.add(one)
        yield
    finally:
        _repeater.remove(one)


_Jobs: TypeAlias = SimpleQueue[tuple[str, _Work]]


class _Threads:
    """The threads of this process; a forked child begins with none."""

    def __init__(self) -> None:
        self._lock = fork_safe_lock()
        self._idle: list[_Jobs] = []  # one for each idle thread; the last one was busy last
        begin_anew_in_child(self, lambda threads: threads._idle.clear())

    def run(self, name: str, work: _Work) -> None:
        with self._lock:
            jobs = self._idle.pop() if self._idle else None
        if jobs is not None:
            jobs.put((name, work))
            return
        jobs = SimpleQueue()
        jobs.put((name, work))  # not as an argument: the thread would keep it until it ends
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
                if awaited:  # a signal's exception came to who was about to give it
                    return
                awaited = True  # a call is on its way
                continue
            awaited = False
            thread.name = name
            deliver = Context().run(work)
            thread.name = _IDLE_NAME
            with self._lock:  # before the caller goes on: his next call finds this thread idle
                self._idle.append(jobs)
            deliver()
            del work, deliver  # an idle thread keeps nothing alive


@dataclass(eq=False, slots=True)
class _Repeated:
    name: str
    seconds: float
    call: Callable[[], bool]
    due: float
    running: bool = False


class _Repeater:
    """Starts all repeated calls of this process, from one thread that ends when there are none."""

    def __init__(self) -> None:
        self._all: set[_Repeated] = set()
        self._begin()
        begin_anew_in_child(self, _Repeater._begin)

    def _begin(self) -> None:
        for one in self._all:  # the body that forked goes on in the child, its call does not
            one.running = False
        self._all = set()
        self._changed = threading.Condition(fork_safe_lock())
        self._look_at: float | None = None  # None: no thread looks

    def add(self, one: _Repeated) -> None:
        try:
            with self._changed:
                self._all.add(one)
                looks = self._look_at is not None
                if self._look_at is None or one.due < self._look_at:
                    self._look_at = one.due
                    self._changed.notify_all()
            if not looks:
                start("memory-repeater", self._look).add_done_callback(self._looked)
        except BaseException:  # Ctrl-C, perhaps before a thread looks; two that look do no harm
            self._nobody_looks()
            raise

    def remove(self, one: _Repeated) -> None:
        with self._changed:
            self._all.discard(one)
            self._changed.wait_for(lambda: not one.running)

    def _look(self) -> None:
        while True:
            with self._changed:
                now = monotonic()
                due = [one for one in self._all if one.due <= now and not one.running]
                for one in due:
                    one.running = True
                if not self._all:
                    self._look_at = None
                    return
                if not due:
                    ahead = [now + one.seconds if one.running else one.due for one in self._all]
                    self._look_at = min(ahead)
                    self._changed.wait(self._look_at - now)
            self._call(due)

    def _looked(self, future: Future[None]) -> None:
        if future.exception() is not None:  # there was no thread: the next one added tries again
            self._nobody_looks()

    def _nobody_looks(self) -> None:
        with self._changed:
            self._look_at = None

    def _call(self, due: list[_Repeated]) -> None:
        for one in due:
            start(one.name, one.call).add_done_callback(partial(self._called, one))

    def _called(self, one: _Repeated, future: Future[bool]) -> None:
        error = future.exception()
        with self._changed:
            one.running, one.due = False, monotonic() + one.seconds
            if error is None and not future.result():
                self._all.discard(one)
            self._changed.notify_all()
        if error is not None:
            logger.error("the repeated call %r failed, and is made again", one.name, exc_info=error)


_threads = _Threads()
_repeater = _Repeater()
