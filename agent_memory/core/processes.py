"""Locks and hooks for a process that forks or ends while its threads work.

A forked child has no thread of its parent, but all locks that the parent's threads held. Daemon
threads stop with the interpreter, wherever they are.
"""

from __future__ import annotations

import concurrent.futures.thread  # noqa: F401 - its hooks must be registered before ours
import contextlib
import itertools
import os
import sys
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")

_IMPORT_SECONDS = 20.0
_M_ARENA_MAX = -8  # from glibc's malloc.h
_OWN_CODE = (
    str(Path(sys._getframe().f_code.co_filename).parents[1]) + os.sep,
    contextlib.contextmanager.__code__.co_filename,
)

_held: list[threading.RLock] = []
_child_hooks: weakref.WeakKeyDictionary[Any, Callable[[Any], None]] = weakref.WeakKeyDictionary()


_Locks = weakref.WeakValueDictionary[int, threading.RLock]
_locks, _known = _Locks(), _Locks()


def _existing(locks: _Locks) -> list[threading.RLock]:
    """Return the existing locks, listed in one step while other threads add more."""
    return [lock for reference in locks.valuerefs() if (lock := reference()) is not None]


def fork_safe_lock(*, own: bool = False) -> threading.RLock:
    """Return a lock that is free in every forked child, with its guarded data complete.

    A fork waits for the holder of the lock. Use the lock for short work, or for work that a child
    cannot continue. A thread that holds such a lock takes no other one and does not fork. Take the
    lock only by `with`, which an exception of a signal handler cannot interrupt. A signal handler
    can take a lock that its thread holds.

    Args:
        own: Whether only the caller uses the lock. Set `own` for work that takes long or takes
            another lock. By default, callers share a few locks in rotation: each fork takes all
            locks, and a call in a signal handler checks all of them.
    """
    if not own:
        return _SHARED[next(_turns) % len(_SHARED)]
    lock = known_lock()
    _locks[id(lock)] = lock
    return lock


def known_lock() -> threading.RLock:
    """Return a lock that `holds_a_lock` knows."""
    lock = threading.RLock()
    _known[id(lock)] = lock
    return lock


_SHARED = [fork_safe_lock(own=True) for _ in range(64)]
_turns = itertools.count()


def is_own(lock: threading.RLock) -> bool:
    return bool(lock._is_owned())  # type: ignore[attr-defined]


def holds_a_lock() -> bool:
    """Return whether this thread holds a lock. This checks all locks of `known_lock`."""
    return any(is_own(lock) for lock in _existing(_known))


def interrupts_a_holder() -> bool:
    """Return whether a signal handler makes this call, and interrupted the holder of a lock.

    Handlers run on the main thread, and only code of this package holds the locks. If no frame of
    this package is on the stack below other code, no lock is held. The locks are then not checked.
    """
    if threading.get_ident() != threading.main_thread().ident:
        return False
    frame: FrameType | None = sys._getframe(1)
    is_below_others = False
    while frame is not None:
        if not frame.f_code.co_filename.startswith(_OWN_CODE):
            is_below_others = True
        elif is_below_others:
            return holds_a_lock()
        frame = frame.f_back
    return False


def begin_anew_in_child(thing: T, begin: Callable[[T], None]) -> None:
    """Call `begin(thing)` in every forked child, for as long as the object lives.

    Threads do not survive a fork. Use this to reset state that depends on them.
    """
    _child_hooks[thing] = begin


def share_arenas() -> None:
    """Limit the C library to two memory arenas for all threads of this process.

    By default, each thread has an arena that returns no memory, and a process with many threads
    grows. Call it before threads start. Nothing changes if the C library is not glibc, or if the
    environment sets the number of arenas.
    """
    import ctypes

    if sys.platform == "linux" and "MALLOC_ARENA_MAX" not in os.environ:
        with suppress(OSError, AttributeError):  # another C library
            ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 2)


def wait_for_imports() -> None:
    """Wait until no other thread is importing, up to a time limit.

    A thread that stops during an import never releases the import lock. After a fork, or at the
    end of the interpreter, that module could no longer be imported.
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
    for lock in _existing(_locks):
        lock.acquire()
        _held.append(lock)
    wait_for_imports()


def _after_fork() -> None:
    while _held:
        _held.pop().release()


def _after_fork_in_child() -> None:
    _after_fork()
    for thing, begin in list(_child_hooks.items()):
        begin(thing)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child
    )
