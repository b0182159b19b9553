"""Which messages are appended one at a time, and which together."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import pytest

from agent_memory import Message
from agent_memory.engine.append import is_brief
from agent_memory.engine.append_queue import AppendQueue
from agent_memory.errors import StoreUnavailable

SHORT = {"role": "user", "content": "hello"}
LONG = {"role": "user", "content": "word " * 10_000}
CALL = {"role": "assistant", "content": "", "tool_calls": [object()]}
PARTS = {"role": "user", "content": [{"type": "text", "text": "hello"}]}


class Dumped:
    """What other libraries give: making a message of it runs their code."""

    def model_dump(self) -> dict[str, Any]:
        return SHORT


class Book:
    """Makes calls, of which the first waits until it is told to go on."""

    def __init__(self) -> None:
        self.inside, self.go_on = threading.Event(), threading.Event()
        self.alone: list[int] = []
        self.turns: list[list[int]] = []
        self.cut_off = False

    def make(self, job: int) -> int:
        self.alone.append(job)
        if job == 0:
            self.inside.set()
            assert self.go_on.wait(30)
        return 10 * job

    def make_all(self, jobs: Sequence[int]) -> list[int | Exception]:
        self.turns.append(list(jobs))
        if self.cut_off:
            raise SystemExit
        return [ValueError(job) if job == 2 else 10 * job for job in jobs]


def begun(call: Callable[[], int]) -> Future[int]:
    """What comes of a call on a thread of its own."""
    future: Future[int] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:  # noqa: BLE001 - told by the future
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def held_up(queue: AppendQueue[int, int], book: Book, jobs: Sequence[int]) -> list[Future[int]]:
    """Calls that wait, in order, for one that is being made; they are let go."""
    first = begun(lambda: queue.run(0))
    assert book.inside.wait(30)
    futures = [first]
    for job in jobs:
        futures.append(begun(lambda job=job: queue.run(job)))  # type: ignore[misc]
        while len(queue._pending) < len(futures) - 1:
            pass
    book.go_on.set()
    return futures


def test_those_that_wait_are_made_together() -> None:
    """Wrong: each waits for a commit of its own; or one's answer, or its mistake, is another's."""
    book = Book()
    queue = AppendQueue[int, int](book.make, book.make_all)
    first, one, two, three = held_up(queue, book, [1, 2, 3])
    assert [first.result(30), one.result(30), three.result(30)] == [0, 10, 30]
    with pytest.raises(ValueError, match="2"):
        two.result(30)
    assert book.turns == [[1, 2, 3]]
    assert book.alone == [0]


def test_the_main_thread_has_nobody_elses_call_in_its_hands() -> None:
    """Wrong: Ctrl-C in the main thread takes messages of other threads with it."""
    book = Book()
    queue = AppendQueue[int, int](book.make, book.make_all)
    first = begun(lambda: queue.run(0))
    assert book.inside.wait(30)
    others = [begun(lambda job=job: queue.run(job)) for job in (3, 4)]  # type: ignore[misc]
    threading.Timer(0.2, book.go_on.set).start()
    assert queue.run(1) == 10
    assert 1 in book.alone
    assert [one.result(30) for one in (first, *others)] == [0, 30, 40]
    assert all(1 not in turn for turn in book.turns)


def test_nobody_hangs_where_the_one_inside_is_cut_off() -> None:
    """Wrong: a thread that ends in the middle of it leaves the others waiting for ever."""
    book = Book()
    book.cut_off = True
    queue = AppendQueue[int, int](book.make, book.make_all)
    _, *waiting = held_up(queue, book, [1, 3])
    errors = [one.exception(30) for one in waiting]
    assert sorted(type(error).__name__ for error in errors) == ["StoreUnavailable", "SystemExit"]
    assert any(isinstance(error, StoreUnavailable) for error in errors)
    book.cut_off = False
    assert begun(lambda: queue.run(5)).result(30) == 50


def test_within_a_call_its_own_thread_may_make_another() -> None:
    """Wrong: a handler of a signal that appends waits for the thread that it interrupted."""
    queues: list[AppendQueue[int, int]] = []

    def nested(job: int) -> int:
        return queues[0].run(job - 1) + 1 if job else 0

    queues.append(AppendQueue[int, int](nested, lambda jobs: [nested(job) for job in jobs]))
    assert begun(lambda: queues[0].run(3)).result(30) == 3
    assert queues[0].run(2) == 2


@pytest.mark.parametrize("message", [SHORT, Message(**SHORT)], ids=["dict", "message"])
def test_short_texts_take_turns(message: Any) -> None:
    """Wrong: threads race for the interpreter between the calls of one append."""
    assert is_brief([message])


@pytest.mark.parametrize(
    "given",
    [[LONG], [SHORT, SHORT], [CALL], [PARTS], [Dumped()]],
    ids=["long", "many", "call", "parts", "foreign"],
)
def test_what_takes_long_or_runs_code_of_others_holds_nobody_up(given: list[Any]) -> None:
    """Wrong: a long text keeps all threads waiting, or code of others is run under a lock."""
    assert not is_brief(given)
