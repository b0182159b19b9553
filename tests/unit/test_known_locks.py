"""Locks that forks and signals' handlers look at, while other threads make more of them."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import pytest

from agent_memory.core.processes import fork_safe_lock, holds_a_lock, known_lock


@pytest.fixture
def made_meanwhile() -> Iterator[None]:
    """Other threads make locks and let go of them, and are switched to as often as can be."""
    done, often = threading.Event(), sys.getswitchinterval()

    def make() -> None:
        while not done.is_set():
            kept = [fork_safe_lock() for _ in range(50)]
            del kept

    threads = [threading.Thread(target=make) for _ in range(3)]
    sys.setswitchinterval(1e-6)
    for thread in threads:
        thread.start()
    yield
    done.set()
    sys.setswitchinterval(often)
    for thread in threads:
        thread.join()


@pytest.mark.usefixtures("made_meanwhile")
def test_locks_are_looked_at_while_others_are_made() -> None:
    """Else: a call ends in "Set changed size during iteration", or a fork goes on without the
    locks, and its child waits for ever."""
    mine = [known_lock() for _ in range(200)]
    for _ in range(300):
        assert not holds_a_lock()
        with mine[150]:
            assert holds_a_lock()


def test_a_lock_that_is_gone_is_not_known() -> None:
    """Else: what is known of locks grows with every call."""
    lock = known_lock()
    with lock:
        assert holds_a_lock()
        del lock
    assert not holds_a_lock()
