"""Appends and brief calls in one batch, and appends that are not batched."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

import pytest

from agent_memory import Message
from agent_memory.engine.append import is_brief
from agent_memory.engine.append_queue import AppendQueue
from agent_memory.errors import StoreUnavailable
from agent_memory.server.batching import Batcher

SHORT = {"role": "user", "content": "hello"}
LONG = {"role": "user", "content": "word " * 10_000}
CALL = {"role": "assistant", "content": "", "tool_calls": [object()]}
PARTS = {"role": "user", "content": [{"type": "text", "text": "hello"}]}


class Dumped:
    """An object of another library: converting it runs that library's code."""

    def model_dump(self) -> dict[str, Any]:
        return SHORT


class Book:
    """Run calls. The first one waits for a signal."""

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
    """Return the future of a call on its own thread."""
    future: Future[int] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:  # noqa: BLE001 - told by the future
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def held_up(queue: AppendQueue[int, int], book: Book, jobs: Sequence[int]) -> list[Future[int]]:
    """Queue calls behind a running one, in order, and then release it."""
    first = begun(lambda: queue.run(0))
    assert book.inside.wait(30)
    futures = [first]
    for job in jobs:
        futures.append(begun(lambda job=job: queue.run(job)))  # type: ignore[misc]
        while len(queue._pending) < len(futures) - 1:
            pass
    book.go_on.set()
    return futures


def test_writers_that_wait_are_made_together() -> None:
    """Wrong: each waiting writer needs a commit of its own."""
    book = Book()
    queue = AppendQueue[int, int](book.make, book.make_all)
    first, one, two, three = held_up(queue, book, [1, 2, 3])
    assert [first.result(30), one.result(30), three.result(30)] == [0, 10, 30]
    with pytest.raises(ValueError, match="2"):
        two.result(30)
    assert book.turns == [[1, 2, 3]]
    assert book.alone == [0]
    queues: list[AppendQueue[int, int]] = []

    def nested(job: int) -> int:
        return queues[0].run(job - 1) + 1 if job else 0

    queues.append(AppendQueue[int, int](nested, lambda jobs: [nested(job) for job in jobs]))
    assert begun(lambda: queues[0].run(3)).result(30) == 3
    assert queues[0].run(2) == 2


def test_the_main_thread_has_nobody_elses_call_in_its_hands() -> None:
    """Wrong: Ctrl-C in the main thread loses messages of other threads."""
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
    """Wrong: a thread that ends during a batch leaves the others waiting forever."""
    book = Book()
    book.cut_off = True
    queue = AppendQueue[int, int](book.make, book.make_all)
    _, *waiting = held_up(queue, book, [1, 3])
    errors = [one.exception(30) for one in waiting]
    assert sorted(type(error).__name__ for error in errors) == ["StoreUnavailable", "SystemExit"]
    assert any(isinstance(error, StoreUnavailable) for error in errors)
    book.cut_off = False
    assert begun(lambda: queue.run(5)).result(30) == 50


@pytest.mark.parametrize("message", [SHORT, Message(**SHORT)], ids=["dict", "message"])
def test_short_texts_take_turns(message: Any) -> None:
    """Wrong: a short message does not count as brief, so threads race within its append."""
    assert is_brief([message])


@pytest.mark.parametrize(
    "given",
    [[LONG], [SHORT, SHORT], [CALL], [PARTS], [Dumped()]],
    ids=["long", "many", "call", "parts", "foreign"],
)
def test_what_takes_long_or_runs_code_of_others_holds_nobody_up(given: list[Any]) -> None:
    """Wrong: a long text, or another library's object, counts as brief, and delays all threads."""
    assert not is_brief(given)


T = TypeVar("T")

Call = Callable[[], Any]


def all_made(calls: Sequence[Call]) -> list[Any]:
    return [_made(call) for call in calls]


def _made(call: Call) -> Any:
    try:
        return call()
    except IndexError as error:
        return error


class Turns:
    """Run calls here, after a pass of the event loop, and count them."""

    def __init__(self) -> None:
        self.count = 0
        self.failure: Exception | None = None

    async def run(self, call: Callable[[], T], /) -> T:
        self.count += 1
        await asyncio.sleep(0)
        if self.failure is not None:
            raise self.failure
        return call()


def test_calls_share_turns_and_fail_alone() -> None:
    """Wrong: a call at the end of a batch waits forever, or fails with another call."""

    async def main() -> list[int]:
        batcher = Batcher(Turns().run, all_made, 1, 60)
        return [await batcher.run(lambda n=n: n) for n in range(5)]  # type: ignore[misc]

    assert asyncio.run(asyncio.wait_for(main(), 30)) == [0, 1, 2, 3, 4]
    turns = Turns()

    async def main() -> list[int]:
        batcher = Batcher(turns.run, all_made, 1, 60)
        return await asyncio.gather(*[batcher.run(lambda n=n: n) for n in range(20)])  # type: ignore[misc]

    assert asyncio.run(main()) == list(range(20))
    assert turns.count <= 2

    async def main() -> list[Any]:
        batcher = Batcher(Turns().run, all_made, 1, 60)
        calls: list[Callable[[], Any]] = [lambda: 1, lambda: [][0], lambda: 3]
        return await asyncio.gather(*map(batcher.run, calls), return_exceptions=True)

    first, second, third = asyncio.run(main())
    assert (first, third) == (1, 3)
    assert isinstance(second, IndexError)


def test_where_no_turn_can_be_had_all_are_told() -> None:
    """Wrong: if no batch can run, its calls wait forever, or block later ones."""
    turns = Turns()
    turns.failure = RuntimeError("can't start new thread")

    async def main() -> tuple[list[Any], int]:
        batcher = Batcher(turns.run, all_made, 1, 60)
        made = [batcher.run(lambda: 1) for _ in range(3)]
        told = await asyncio.gather(*made, return_exceptions=True)
        turns.failure = None
        return told, await batcher.run(lambda: 2)

    told, after = asyncio.run(asyncio.wait_for(main(), 30))
    assert [str(one) for one in told] == ["can't start new thread"] * 3
    assert after == 2


def test_one_whose_caller_has_gone_is_not_begun() -> None:
    """Wrong: a cancelled call runs anyway, or breaks its batch."""
    made: list[str] = []

    async def main() -> None:
        batcher = Batcher(Turns().run, all_made, 1, 60)
        first = asyncio.ensure_future(batcher.run(lambda: made.append("first")))
        await asyncio.sleep(0)  # it has begun
        gone = asyncio.ensure_future(batcher.run(lambda: made.append("gone")))
        last = asyncio.ensure_future(batcher.run(lambda: made.append("last")))
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.gather(first, last)
        with pytest.raises(asyncio.CancelledError):
            await gone

    asyncio.run(main())
    assert made == ["first", "last"]


def test_a_turn_that_hangs_is_given_up() -> None:
    """Wrong: a store that does not answer blocks a request and all after it."""
    made = 0

    async def run(call: Callable[[], T], /) -> T:
        nonlocal made
        made += 1
        if made == 1:
            await asyncio.Event().wait()
        return call()

    async def main() -> int:
        batcher = Batcher(run, all_made, 1, 0.01)
        with pytest.raises(TimeoutError):
            await batcher.run(lambda: 1)
        return await batcher.run(lambda: 2)

    assert asyncio.run(asyncio.wait_for(main(), 30)) == 2
