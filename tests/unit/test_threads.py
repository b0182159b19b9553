"""Reused threads: assignment of calls, hanging calls, forks and exit."""

from __future__ import annotations

import gc
import logging
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

import pytest

from agent_memory.core import threads
from agent_memory.core.processes import wait_for_imports
from agent_memory.core.threads import Handover, repeated
from agent_memory.engine.recall.runner import MOST_ABANDONED, TimeLimited, in_parallel
from agent_memory.ltm_blocks.base import QueryThread
from agent_memory.models import loading
from tests.kit import SECONDS, started_threads, until


@pytest.fixture(autouse=True)
def started(monkeypatch: pytest.MonkeyPatch) -> list[threading.Thread]:
    """The threads that were started, in a process without idle ones."""
    return started_threads(monkeypatch)


def test_threads_are_reused_and_a_hanging_call_blocks_none(started: list[threading.Thread]) -> None:
    """Wrong: each call starts a thread, or calls wait behind hanging ones."""
    idents = {Handover("call", threading.get_ident).result() for _ in range(50)}
    assert len(idents) == len(started) == 1
    assert started[0].daemon
    gate = threading.Event()
    try:
        hanging = [Handover("hangs", gate.wait) for _ in range(40)]
        assert Handover("works", lambda: "done").result(SECONDS) == "done"
        assert not any(call.ended(0) for call in hanging)
    finally:
        gate.set()
    assert all(call.result(SECONDS) for call in hanging)
    assert len(started) == 41
    assert in_parallel([lambda: 1] * 42) == [1] * 42  # the first is the caller's
    assert len(started) == 41


def test_idle_threads_end(started: list[threading.Thread], monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: a process keeps all threads that it ever needed."""
    monkeypatch.setattr(threads, "IDLE_SECONDS", 0.01)
    Handover("call", lambda: None).result()
    (thread,) = started
    thread.join(SECONDS)
    assert not thread.is_alive()
    assert Handover("call", lambda: "done").result() == "done"


class Unlucky:
    """A queue whose second wait ends just before an item arrives."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[Any] = SimpleQueue()
        self._gets = 0

    def put(self, item: object) -> None:
        self._queue.put(item)

    def get(self, timeout: float) -> Any:
        item = self._queue.get(timeout=timeout)
        self._gets += 1
        if self._gets == 2:
            self._queue.put(item)
            raise Empty
        return item


def test_a_call_assigned_to_an_ending_thread_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: a call assigned to an ending thread never runs."""
    monkeypatch.setattr(threads, "SimpleQueue", Unlucky)
    assert [Handover("call", partial(int, n)).result(SECONDS) for n in range(3)] == [0, 1, 2]


def test_each_call_has_its_own_context_variables() -> None:
    """Wrong: a call sees context variables of its caller or of an earlier call."""
    word: ContextVar[str] = ContextVar("word", default="nothing")

    def exchange() -> str:
        seen = word.get()
        word.set("left by a call")
        return seen

    word.set("the caller's")
    assert [Handover("call", exchange).result() for _ in range(2)] == ["nothing"] * 2
    assert word.get() == "the caller's"


def test_an_idle_thread_holds_no_references() -> None:
    """Wrong: an idle thread keeps a store or a long answer in memory."""

    class Large:
        def give(self) -> Large:
            return self

    large = Large()
    gone = weakref.ref(large)
    assert Handover("call", large.give).result() is large
    del large

    def is_gone() -> bool:
        gc.collect()
        return gone() is None

    until(is_gone)


def test_an_error_in_a_call_is_raised_to_its_caller() -> None:
    """Wrong: an error ends the thread or is printed instead of raised to the caller."""
    for error in (ValueError("no"), KeyboardInterrupt(), SystemExit(3)):

        def fail(error: BaseException = error) -> None:
            raise error

        with pytest.raises(type(error)) as caught:
            Handover("fails", fail).result()
        assert caught.value is error
    assert Handover("call", lambda: "done").result() == "done"


def test_the_follow_up_of_an_abandoned_call_runs_once(
    started: list[threading.Thread], caplog: pytest.LogCaptureFixture
) -> None:
    """Wrong: an abandoned call's follow-up is skipped, runs twice, or ends its thread."""
    gate, followed = threading.Event(), list[str]()

    def fail() -> None:
        followed.append(threading.current_thread().name)
        raise ValueError("nothing to undo")

    assert Handover("slow", gate.wait, fail).abandon()
    assert followed == []
    gate.set()
    until(lambda: started[0].name != "slow")
    assert followed == ["slow"]
    assert "'slow' failed" in caplog.text
    assert Handover("call", lambda: "done", fail).result() == "done"
    assert (followed, len(started)) == (["slow"], 1)


def test_a_call_does_not_hang_if_no_thread_can_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: if no thread can start, the caller hangs, or work that could continue fails."""

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    def interrupt(thread: threading.Thread) -> None:
        raise KeyboardInterrupt

    def interrupt_a_wait(thread: threading.Thread) -> None:
        lock = threading.Lock()
        with lock:
            lock.release()  # like a waiting `Condition`
            raise KeyboardInterrupt

    called = threading.Event()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", interrupt)
        with pytest.raises(KeyboardInterrupt), repeated("beat", 0.001, lambda: True):
            pass
        patch.setattr(threading.Thread, "start", interrupt_a_wait)
        with pytest.raises(KeyboardInterrupt):
            Handover("call", lambda: None)
        patch.delitem(sys.modules, "litellm", raising=False)
        patch.setattr(loading, "_loader", None)
        with pytest.raises(KeyboardInterrupt):
            loading.load_in_background()
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(OSError, match="can't start"):
            Handover("call", lambda: None).result()
        with repeated("beat", 0.001, lambda: True):
            pass
    with repeated("beat", 0.001, lambda: called.set() or True):
        assert called.wait(SECONDS)


def test_the_number_of_abandoned_calls_is_limited() -> None:
    """Wrong: hanging calls use ever more threads, or calls that ended still count."""
    limited, gate, ended = TimeLimited(), threading.Event(), threading.Semaphore(0)
    try:
        for _ in range(MOST_ABANDONED):
            with pytest.raises(TimeoutError, match="took longer"):
                limited.run("one", gate.wait, 0, ended.release)
        with pytest.raises(TimeoutError, match="32 earlier calls still hang"):
            limited.run("one", lambda: True, SECONDS, ended.release)
        assert limited.run("other", lambda: "done", SECONDS, ended.release) == "done"
        assert limited.run_all({"one": gate.wait, "other": lambda: True}, SECONDS)[0]["other"]
    finally:
        gate.set()
    for _ in range(MOST_ABANDONED):
        assert ended.acquire(timeout=SECONDS)
    assert limited.run("one", lambda: "done", SECONDS, ended.release) == "done"


def test_calls_can_share_a_thread(started: list[threading.Thread]) -> None:
    """Wrong: calls share no thread, or one that hangs loses earlier results or delays others."""
    gate, limited = threading.Event(), TimeLimited()
    shared: dict[str, QueryThread] = {"a": "shared", "b": "shared", "c": "shared", "d": "caller"}
    calls: dict[str, Callable[[], Any]] = dict.fromkeys("abcde", threading.get_ident)
    found, slow = limited.run_all(calls, SECONDS, threads=shared)
    assert slow == []
    assert [*found] == [*"abcde"]
    assert found["a"] == found["b"] == found["c"] != found["d"] == threading.get_ident()
    try:
        found, slow = limited.run_all({**calls, "b": gate.wait}, 0.05, threads=shared)
        assert ([*found], slow) == (["a", "d", "e"], ["b", "c"])
    finally:
        gate.set()
    assert limited.run_all(calls, SECONDS, threads=shared)[1] == []


def test_in_parallel_waits_for_all_calls_after_an_error() -> None:
    """Wrong: after one call failed, the caller continues while others still run."""
    gate, ended = threading.Event(), list[int]()

    def slow() -> None:
        gate.wait(SECONDS)
        ended.append(1)

    def fail() -> None:
        gate.set()
        raise ValueError("the first")

    with pytest.raises(ValueError, match="the first"):
        in_parallel([fail, slow, slow])
    assert ended == [1, 1]
    assert in_parallel([]) == []


class Calls:
    """Count calls. Each returns what it is told to."""

    def __init__(self, give: Callable[[int], bool] = lambda _: True) -> None:
        self.count = 0
        self._give = give

    def __call__(self) -> bool:
        self.count += 1
        return self._give(self.count)


def test_a_repeated_call_ends_when_it_returns_false() -> None:
    """Wrong: a repeated call runs once, or again after it returned False."""
    for_ever, once = Calls(), Calls(lambda _: False)
    with repeated("once", 0.001, once), repeated("ever", 0.001, for_ever):
        until(lambda: once.count)
        seen = for_ever.count
        until(lambda: for_ever.count > seen + 20)
    assert once.count == 1
    ended = for_ever.count
    with repeated("another", 0.001, again := Calls()):
        until(lambda: again.count > 20)
    assert for_ever.count == ended


def test_a_repeated_call_that_hangs_delays_no_other() -> None:
    """Wrong: a store that does not answer makes another store's leases expire."""
    gate = threading.Event()
    hangs, works = Calls(lambda _: gate.wait(SECONDS)), Calls()
    with repeated("hangs", 0.001, hangs), repeated("works", 0.001, works):
        until(lambda: hangs.count)
        seen = works.count
        until(lambda: works.count > seen + 20)
        assert hangs.count == 1
        gate.set()
        until(lambda: hangs.count > 2)
    with repeated("hourly", 3600, hourly := Calls()), repeated("soon", 0.001, soon := Calls()):
        until(lambda: soon.count > 2)
    assert hourly.count == 0


def test_the_end_of_the_body_waits_for_a_running_call() -> None:
    """Wrong: a lease is renewed after it was released."""
    gate, within, ended = threading.Event(), threading.Event(), list[str]()

    def call() -> bool:
        within.set()
        gate.wait(SECONDS)
        ended.append("call")
        return True

    timer = threading.Timer(0.05, gate.set)
    with repeated("beat", 0.001, call):
        assert within.wait(SECONDS)
        timer.start()
    assert ended == ["call"]
    timer.join()


def test_a_repeated_call_continues_after_an_error(caplog: pytest.LogCaptureFixture) -> None:
    """Wrong: one error ends the renewal of a lease, or is not logged."""

    def fail(count: int) -> bool:
        if count == 1:
            raise ValueError("out of the blue")
        return True

    with caplog.at_level(logging.ERROR), repeated("beat", 0.001, calls := Calls(fail)):
        until(lambda: calls.count > 2)
    assert ["'beat' failed" in record.getMessage() for record in caplog.records] == [True]


def run(script: str) -> None:
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", script]  # of forks
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    assert (done.returncode, done.stderr) == (0, "")


FORK = """
import os, threading, time
from agent_memory.core import threads
from agent_memory.core.processes import holds_a_lock, checked_lock
from agent_memory.core.threads import Handover, repeated
from agent_memory.engine.recall.runner import MOST_ABANDONED, TimeLimited, in_parallel

never, within, limited = threading.Event(), threading.Event(), TimeLimited()


def hangs():
    within.set()
    return never.wait()


for _ in range(MOST_ABANDONED):
    try:
        limited.run("one", hangs, 0, lambda: None)
    except TimeoutError:
        pass
in_parallel([lambda: time.sleep(0.01)] * 4)  # three are idle now
within.clear()
if not (child := os.fork()):
    assert in_parallel([lambda: 1] * 4) == [1] * 4
    assert limited.run("one", lambda: "done", 60, lambda: None) == "done"
    called = threading.Semaphore(0)
    with repeated("beat", 0.001, lambda: called.release() or True):
        assert called.acquire(timeout=60)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
with repeated("hangs", 0.001, hangs):
    assert within.wait(60)
    if not (child := os.fork()):
        called = threading.Semaphore(0)
        with repeated("beat", 0.001, lambda: called.release() or True):
            assert called.acquire(timeout=60)
    else:
        assert os.waitpid(child, 0)[1] == 0
        never.set()
assert Handover("call", lambda: "done").result(60) == "done"
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
def test_a_fork_does_not_hang() -> None:
    """Wrong: a forked child waits for threads that it does not have."""
    run(FORK)


FORKS_IN_A_CALL = """
import os
from agent_memory.core.threads import Handover


def fork():
    if not (child := os.fork()):
        assert Handover("child", lambda: "done").result(60) == "done"
        os._exit(0)
    return os.waitpid(child, 0)[1]


assert [Handover("forks", fork).result(60) for _ in range(5)] == [0] * 5
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
def test_a_process_that_a_call_forks_does_not_hang() -> None:
    """Wrong: a process that a block starts waits forever."""
    run(FORKS_IN_A_CALL)


EXIT = """
import atexit, threading, time
from agent_memory.core import threads
from agent_memory.core.processes import holds_a_lock, checked_lock
from agent_memory.core.threads import Handover, repeated
from agent_memory.engine.recall.runner import in_parallel

threads.IDLE_SECONDS = 60

within = [threading.Event() for _ in range(2)]


def hangs(n):
    within[n].set()
    return threading.Event().wait()


@atexit.register
def late():
    with repeated("late", 0.001, lambda: True):
        pass
    assert Handover("late", lambda: "done").result(60) == "done"  # no thread can be started


Handover("hangs", lambda: hangs(0))
in_parallel([lambda: time.sleep(0.01)] * 4)  # three threads are idle now
holding = repeated("hangs", 0.001, lambda: hangs(1))
holding.__enter__()
for one in within:
    assert one.wait(60)
"""


def test_the_interpreter_exits_despite_hanging_calls() -> None:
    """Wrong: an exit waits for a hanging call or an idle thread, or prints an error of one."""
    run(EXIT)


def test_the_wait_for_imports_also_works_under_gevent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: gevent replaces `get_ident`, and a process prints a traceback when it ends."""
    monkeypatch.setattr(threading, "get_ident", lambda: 1)
    wait_for_imports()
