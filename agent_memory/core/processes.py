"""Threads, when the process forks or ends: neither may catch one of them in the middle of things.

A forked child has none of its parent's threads, but all the locks that they held. And daemon
threads end with the interpreter, wherever they are.
"""

from __future__ import annotations

import concurrent.futures.thread  # noqa: F401 - its own hooks must be there before ours run
import itertools
import os
import sys
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from time import monotonic, sleep
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")

_IMPORT_SECONDS = 20.0
_M_ARENA_MAX = -8  # of glibc's malloc.h

_held: list[threading.RLock] = []
_anew: weakref.WeakKeyDictionary[Any, Callable[[Any], None]] = weakref.WeakKeyDictionary()


class _Living:
    """Locks as long as somebody has them; listed in one step, while other threads make more."""

    def __init__(self) -> None:
        self._found: dict[int, weakref.ref[threading.RLock]] = {}

    def add(self, lock: threading.RLock) -> None:
        found, name = self._found, id(lock)
        found[name] = weakref.ref(lock, lambda _: found.pop(name, None))

    def all(self) -> list[threading.RLock]:
        living = (one() for one in list(self._found.values()))
        return [lock for lock in living if lock is not None]


_locks, _known = _Living(), _Living()


def fork_safe_lock(*, own: bool = False) -> threading.RLock:
    """A lock that nobody holds in a forked child, so that what it guards is whole there too.

    The fork waits for whoever holds it. So it is for short work, or for work that no child could
    go on with half-done. Who holds one takes no other, and does not fork. It is taken by `with`
    alone, which no signal's exception can tear; a signal's handler takes it again.

    Args:
        own: Whether nobody else is to have the same lock: for work that takes long, or takes
            another lock. Else a few are handed out by turns, however many memories are open: each
            fork, and each call of the main thread, looks at all of them.
    """
    if not own:
        return _SHARED[next(_turns) % len(_SHARED)]
    lock = known_lock()
    _locks.add(lock)
    return lock


def known_lock() -> threading.RLock:
    """A lock that `holds_a_lock` knows."""
    lock = threading.RLock()
    _known.add(lock)
    return lock


_SHARED = [fork_safe_lock(own=True) for _ in range(64)]
_turns = itertools.count()


def is_own(lock: threading.RLock) -> bool:
    """Whether this thread holds a lock."""
    return bool(lock._is_owned())  # type: ignore[attr-defined]


def holds_a_lock() -> bool:
    """Whether this thread holds a lock that others may wait for.

    A signal's handler finds it so, where it interrupts who works under one.
    """
    return any(is_own(lock) for lock in _known.all())


def begin_anew_in_child(thing: T, begin: Callable[[T], None]) -> None:
    """Have `begin(thing)` called in every forked child, for as long as the thing lives.

    For what is about threads: of those none has crossed the fork.
    """
    _anew[thing] = begin


def share_arenas() -> None:
    """Have the threads of this process share two of the C library's arenas of memory.

    Each thread has one of its own else, which gives nothing back: a process of many threads that
    runs for long grows by that. Called before there are threads. Where the C library is no glibc,
    or the environment says how many there are to be, nothing is changed.
    """
    import ctypes

    if sys.platform == "linux" and "MALLOC_ARENA_MAX" not in os.environ:
        with suppress(OSError, AttributeError):  # another C library
            ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 2)


def wait_for_imports() -> None:
    """Wait, though not for ever, until no other thread is in the middle of an import.

    What it had begun to import nobody could import any more, after a fork or while the interpreter
    ends (it does import then): the lock on that would never be released.
    """
    deadline = monotonic() + _IMPORT_SECONDS
    while _others_import() and monotonic() < deadline:
        sleep(0.001)


def _others_import() -> bool:
    frames = sys._current_frames()
    del frames[threading.get_ident()]
    return any(_imports(frame) for frame in frames.values())


def _imports(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False


def _before_fork() -> None:
    for lock in _locks.all():
        lock.acquire()
        _held.append(lock)
    wait_for_imports()


def _after_fork() -> None:
    while _held:
        _held.pop().release()


def _after_fork_in_child() -> None:
    _after_fork()
    for thing, begin in list(_anew.items()):
        begin(thing)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=_after_fork,
        after_in_child=_after_fork_in_child,
    )
