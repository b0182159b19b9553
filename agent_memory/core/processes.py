"""Locks and hooks for a process that forks or ends while its threads work.

A forked child has none of its parent's other threads. Locks that these threads held stay locked in
the child. At the end of the interpreter, daemon threads stop at any line.
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
from traceback import walk_stack
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")

_IMPORT_SECONDS = 20.0
_IMPORT_SYSTEM = "<frozen importlib._bootstrap>"
_M_ARENA_MAX = -8  # from glibc's malloc.h
_OWN_CODE = (
    str(Path(sys._getframe().f_code.co_filename).parents[1]) + os.sep,
    contextlib.contextmanager.__code__.co_filename,
)

_held = contextlib.ExitStack()
_child_hooks: weakref.WeakKeyDictionary[Any, Callable[[Any], None]] = weakref.WeakKeyDictionary()


_Locks = weakref.WeakValueDictionary[int, threading.RLock]
_locks, _checked = _Locks(), _Locks()


def _existing(locks: _Locks) -> list[threading.RLock]:
    """Return the locks that still exist. Other threads may add more meanwhile."""
    return [lock for reference in locks.valuerefs() if (lock := reference()) is not None]


def fork_safe_lock(*, own: bool = False) -> threading.RLock:
    """Return a lock that is free in every forked child, where the guarded data is complete.

    A fork waits for the holder of the lock. Use the lock for short work, or for work that a child
    cannot continue. A thread that holds such a lock must not fork or take another such lock. Take
    the lock only by `with`, which an exception of a signal handler cannot interrupt. A signal
    handler can take a lock that its own thread holds.

    Args:
        own: Whether to return a lock that no other caller gets. Set `own` for work that takes long,
            or that takes a lock of another kind. Otherwise, all callers share 64 locks, because
            each fork takes every lock.
    """
    if not own:
        return _SHARED[next(_turns) % len(_SHARED)]
    lock = checked_lock()
    _locks[id(lock)] = lock
    return lock


def checked_lock() -> threading.RLock:
    """Return a lock that `holds_a_lock` checks."""
    lock = threading.RLock()
    _checked[id(lock)] = lock
    return lock


_SHARED = [fork_safe_lock(own=True) for _ in range(64)]
_turns = itertools.count()


def is_own(lock: threading.RLock) -> bool:
    return bool(lock._is_owned())  # type: ignore[attr-defined]


def holds_a_lock() -> bool:
    """Return whether this thread holds any lock of `checked_lock` or `fork_safe_lock`."""
    return any(is_own(lock) for lock in _existing(_checked))


def interrupts_a_holder() -> bool:
    """Return whether this call is from a signal handler that interrupted the holder of a lock."""
    if threading.get_ident() != threading.main_thread().ident:
        return False
    # The locks are held only while a function of this package is on the stack, below the handler.
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
    """Call `begin(thing)` in every forked child, as long as `thing` exists.

    Threads do not survive a fork: reset state that depends on them.
    """
    _child_hooks[thing] = begin


def share_arenas() -> None:
    """Limit glibc to two memory arenas for all threads of this process.

    By default, each thread may have its own arena, which does not return memory to the system. Call
    this function before threads start. The environment variable MALLOC_ARENA_MAX has priority.
    """
    import ctypes

    if sys.platform == "linux" and "MALLOC_ARENA_MAX" not in os.environ:
        with suppress(OSError, AttributeError):  # the C library is not glibc
            ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 2)


def wait_for_imports() -> None:
    """Wait until no other thread is importing, for at most 20 seconds.

    If a fork or the end of the interpreter stops a thread during an import, the thread never
    releases the module's import lock.
    """
    deadline = monotonic() + _IMPORT_SECONDS
    while _others_import() and monotonic() < deadline:
        sleep(0.001)


def _others_import() -> bool:
    here = sys._getframe()  # not by the thread's ident, which gevent replaces
    frames = [frame for frame in sys._current_frames().values() if frame is not here]
    callers = (caller for frame in frames for caller, _ in walk_stack(frame))
    return any(caller.f_code.co_filename == _IMPORT_SYSTEM for caller in callers)


def _before_fork() -> None:
    for lock in _existing(_locks):
        _held.enter_context(lock)
    wait_for_imports()


def _after_fork_in_child() -> None:
    _held.close()
    for thing, begin in list(_child_hooks.items()):
        begin(thing)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork, after_in_parent=_held.close, after_in_child=_after_fork_in_child
    )
