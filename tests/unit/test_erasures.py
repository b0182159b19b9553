"""Erasures that threads share: each caller's begins after it asked."""

from __future__ import annotations

import threading
from functools import partial

import pytest

from agent_memory.stores.erasures import Erasures


class _Turn:
    """The lock of an erasure, which lets a test wait until so many want it."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self.asked = threading.Semaphore(0)

    def __enter__(self) -> None:
        self.asked.release()
        self._lock.acquire()

    def __exit__(self, *exc: object) -> None:
        self._lock.release()


def test_who_asks_meanwhile_shares_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: a caller is content with one that began before it asked, or each has its own."""
    erasures, turn, begun, may_end = Erasures(), _Turn(), threading.Event(), threading.Event()
    monkeypatch.setattr(erasures, "_turn", turn)
    runs: list[str] = []

    def slow() -> None:
        runs.append("first")
        begun.set()
        assert may_end.wait(60)

    threads = [threading.Thread(target=erasures.share, args=(slow,))]
    threads[0].start()
    assert begun.wait(60)
    again = partial(erasures.share, lambda: runs.append("second"))
    threads += [threading.Thread(target=again) for _ in range(8)]
    for thread in threads[1:]:
        thread.start()
    for _ in threads:
        assert turn.asked.acquire(timeout=60)
    may_end.set()
    for thread in threads:
        thread.join(60)
    assert runs == ["first", "second"]
    again()
    assert runs == ["first", "second", "second"]


def test_one_that_fails_is_nobody_elses() -> None:
    """Wrong: who shares one that failed believes that it was done."""
    erasures, runs = Erasures(), list[int]()

    def fail() -> None:
        runs.append(1)
        raise OSError("full")

    for _ in range(2):
        with pytest.raises(OSError, match="full"):
            erasures.share(fail)
    erasures.share(lambda: runs.append(2))
    assert runs == [1, 1, 2]


def test_a_handler_may_ask_within_one() -> None:
    """Wrong: the handler of a signal waits for the thread that it interrupts."""
    erasures, runs = Erasures(), list[str]()

    def outer() -> None:
        erasures.share(lambda: runs.append("inner"))
        runs.append("outer")

    erasures.share(outer)
    erasures.share(lambda: runs.append("next"))
    assert runs == ["inner", "outer", "next"]
