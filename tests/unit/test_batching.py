"""Calls that wait for each other: made together, or in the order of their places."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from time import monotonic, sleep
from typing import Any, TypeVar

import pytest

from agent_memory import Message
from agent_memory.engine.append import AppendQueue, is_brief
from agent_memory.errors import StoreUnavailable
from agent_memory.server.batching import Batcher
from agent_memory.stores.sql.database import Place, Places

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


def test_waiting_writers_are_committed_together() -> None:
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


def test_the_main_thread_runs_only_its_own_call() -> None:
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


def test_waiting_threads_return_if_the_running_thread_ends() -> None:
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
def test_a_short_message_is_brief(message: Any) -> None:
    """Wrong: a short message does not count as brief, so threads race within its append."""
    assert is_brief([message])


@pytest.mark.parametrize(
    "given",
    [[LONG], [SHORT, SHORT], [CALL], [PARTS], [Dumped()]],
    ids=["long", "many", "call", "parts", "foreign"],
)
def test_long_texts_and_foreign_objects_delay_no_thread(given: list[Any]) -> None:
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


def test_calls_share_batches_and_fail_separately() -> None:
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


def test_all_calls_fail_if_their_batch_cannot_run() -> None:
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


def test_a_cancelled_call_is_not_started() -> None:
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


def test_a_batch_that_hangs_times_out() -> None:
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


class Connection:
    """Count the open ones."""

    def __init__(self, open_ones: set[Connection]) -> None:
        self._open = open_ones
        open_ones.add(self)

    def close(self) -> None:
        self._open.discard(self)


@contextmanager
def held(places: Places[Connection]) -> Iterator[None]:
    for place in places:
        place.lock.acquire()
    try:
        yield
    finally:
        for place in places:
            place.lock.release()


def test_free_connections_are_used_first_and_waits_end_in_time() -> None:
    """Wrong: a busy connection is used before a free one, or a wait ends too early or never."""
    places: Places[Connection] = Places(3, 1)
    first, second, _ = places
    assert places.any() is first
    with first.lock:
        assert places.any() is second
    assert [place.keeps for place in places] == [True, False, False]
    places: Places[Connection] = Places(2, 2)
    with held(places):
        began = monotonic()
        assert places.awaited(0.3) is None
        assert monotonic() - began >= 0.3
        assert places.any() in list(places)


def test_a_waiting_thread_is_woken_when_a_connection_is_free() -> None:
    """Wrong: a waiting thread is not woken when a connection is free."""
    places: Places[Connection] = Places(1, 1)
    found: list[Place[Connection] | None] = []
    with held(places):
        thread = threading.Thread(target=lambda: found.append(places.awaited(30)))
        thread.start()
        sleep(0.05)
    places.notify()
    thread.join(30)
    assert found == list(places)
    places.notify()  # without a waiter, the signal is not kept for the next one
    with held(places):
        assert places.awaited(0) is None


def test_many_threads_share_a_few_connections() -> None:
    places: Places[Connection] = Places(3, 1)
    open_ones: set[Connection] = set()
    most, used = [0], [0]

    def work(_: int) -> None:
        place = places.awaited(30)
        assert place is not None
        try:
            with place.lock:
                place.connection = place.connection or Connection(open_ones)
                most[0] = max(most[0], len(open_ones))
                used[0] += 1
                sleep(0.0005)
                if not place.keeps:
                    place.clear()
        finally:
            places.notify()

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(work, range(400)))
    assert used[0] == 400
    assert most[0] <= 3
    assert len(open_ones) <= 1
    places.clear()
    assert not open_ones


def test_a_connection_in_use_stays_open() -> None:
    places: Places[Connection] = Places(2, 2)
    open_ones: set[Connection] = set()
    for place in places:
        place.connection = Connection(open_ones)
    first, second = places
    with first.lock:
        places.clear()
    assert first.connection is not None
    assert second.connection is None
    assert open_ones == {first.connection}
