"""Calls cancelled at any moment: they take full effect or none, and leave no lease behind."""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from agent_memory import AgentMemory, AsyncAgentMemory, Block, FlushToLTM, Message
from agent_memory.aio import THREADS
from agent_memory.core.records import Entry, Recall, Scope
from agent_memory.engine.recall.runner import TimeLimited, resolve
from agent_memory.errors import MemoryClosed
from agent_memory.stores import MemoryStore
from agent_memory.strategies.base import Absorb
from agent_memory.testing.watching import watched
from tests.kit import Echo, wait_for_calls

WAYS = ["asyncio", "trio", "task.cancel"]
"""anyio's cancel scopes on both loops, and asyncio's own `cancel`, which ignores shields."""

Call = Callable[[AsyncAgentMemory], Awaitable[Any]]


def messages(first: int, count: int) -> list[dict[str, str]]:
    return [{"role": "user", "content": f"Message {n}"} for n in range(first, first + count)]


CALLS: dict[str, Call] = {
    "update": lambda memory: memory.update("s", messages(7, 3)),
    "get": lambda memory: memory.get("s", "hello"),
    "flush": lambda memory: memory.flush(),
    "delete": lambda memory: memory.delete("s"),
    "delete_user": lambda memory: memory.delete_user("ada"),
    "pop": lambda memory: memory.pop("s", 2),
}
LEFT = {"update": 9, "get": 6, "flush": 6, "delete": 0, "delete_user": 0, "pop": 4}
"""The number of messages in the session after the call."""


class Steps:
    """Counts the steps of the store, and can stop at one of them until it is released."""

    def __init__(self) -> None:
        self.count = 0
        self.stop_at = 0
        self.reached = threading.Event()
        self.go = threading.Event()

    def watch_for(self, step: int) -> None:
        self.count, self.stop_at = 0, step
        self.reached.clear()
        self.go.clear()

    def __call__(self, step: str) -> None:
        self.count += 1
        if self.count == self.stop_at:
            self.reached.set()
            self.go.wait()


def rigged(name: str) -> tuple[AsyncAgentMemory, MemoryStore, Steps]:
    """Return a memory with six messages, absorbed unless the call is `flush`."""
    store, steps = MemoryStore(), Steps()
    absorb: Absorb = "every_update" if name == "update" else "overflow"
    overflow = FlushToLTM(blocks=[Echo(name="facts")], absorb=absorb)
    memory = AgentMemory(store=watched(store, steps), overflow=overflow)
    memory.update("s", messages(1, 6), user_id="ada")
    if name != "flush":
        memory.flush()
    return AsyncAgentMemory(memory), store, steps


def at(way: str, main: Callable[[], Awaitable[None]]) -> None:
    anyio.run(main, backend="trio" if way == "trio" else "asyncio")


async def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        await anyio.sleep(0.001)


async def cancel_when_reached(way: str, steps: Steps, call: Callable[[], Awaitable[Any]]) -> None:
    """Cancel a call that has stopped at a step, then let the step continue."""
    if way == "task.cancel":
        task = asyncio.ensure_future(call())
        await until(steps.reached.is_set)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task  # returns although the step is stopped
        steps.go.set()
        return
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:

            async def cancel() -> None:
                with anyio.CancelScope(shield=True):
                    await until(steps.reached.is_set)
                    scope.cancel()
                    steps.go.set()

            group.start_soon(cancel)
            await call()
    assert scope.cancel_called


def whole(store: MemoryStore, count: int) -> bool:
    """Return whether the session has `count` messages, each with one record, and no lease."""
    head = store.head("s")
    if head is None:
        return count == 0 and store.records("facts", "user:ada") == []
    records = Counter(record.first for record in store.records("facts", "user:ada"))
    if records != dict.fromkeys(range(1, count + 1), 1):
        return False
    if head.end != count or [entry.seq for entry in store.read("s")] != list(range(1, count + 1)):
        return False
    free = store.lease("s", "anybody", 10)
    store.release("s", "anybody")
    return free


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", CALLS)
def test_a_call_cancelled_at_any_step_takes_full_effect_or_none(name: str, way: str) -> None:
    """Wrong: a cancelled call stores a part, keeps its lease, or delays an asyncio caller."""

    async def main() -> None:
        memory, _, steps = rigged(name)
        steps.watch_for(0)
        await CALLS[name](memory)
        total = steps.count
        await memory.close()
        assert total > 1
        for step in range(1, total + 1):
            memory, store, steps = rigged(name)
            steps.watch_for(step)
            await cancel_when_reached(way, steps, partial(CALLS[name], memory))
            await until(lambda memory=memory: not memory._calls)  # type: ignore[misc]
            assert whole(store, LEFT[name])
            head = await memory.update("s", messages(1, 2), user_id="ada")
            assert head.end == LEFT[name] + 2
            await memory.flush()
            assert whole(store, LEFT[name] + 2)
            await memory.close()

    at(way, main)


@pytest.mark.parametrize("way", WAYS)
def test_a_call_cancelled_before_it_starts_has_no_effect(way: str) -> None:
    """Wrong: a call that is cancelled while it waits for a thread still runs."""

    async def main() -> None:
        memory, store, _ = rigged("get")
        busy = threading.Event()
        async with anyio.create_task_group() as group:
            for _ in range(THREADS):
                group.start_soon(memory._run, busy.wait)
            limiter = memory._limiters[THREADS]
            await until(lambda: (own := limiter.get(None)) and own.available_tokens == 0)
            if way == "task.cancel":
                task = asyncio.ensure_future(memory.update("s", messages(7, 3)))
                await asyncio.sleep(0.01)
                task.cancel()
                await asyncio.wait([task])
            else:
                with anyio.move_on_after(0.01) as scope:
                    await memory.update("s", messages(7, 3))
                assert scope.cancelled_caught
            busy.set()
        assert whole(store, 6)
        await memory.close()

    at(way, main)


def test_close_waits_for_cancelled_calls() -> None:
    """Wrong: `close` does not wait for a cancelled call, which then cannot release its lease."""

    async def main() -> None:
        memory, store, steps = rigged("flush")
        steps.watch_for(6)
        task = asyncio.ensure_future(memory.flush("s"))
        await until(steps.reached.is_set)
        task.cancel()
        await asyncio.wait([task])
        closing = asyncio.ensure_future(memory.close())
        await asyncio.sleep(0.05)
        assert not closing.done()
        steps.go.set()
        await closing
        assert whole(store, 6)

    asyncio.run(main())


@pytest.mark.parametrize("way", ["asyncio", "trio"])
def test_a_cancellation_within_async_with_closes_the_memory(way: str, tmp_path: Path) -> None:
    """Wrong: leaving `async with` by cancellation does not close the memory."""

    async def main() -> None:
        memory = AsyncAgentMemory(store=f"sqlite:///{tmp_path}/m.db")
        with anyio.CancelScope() as scope:
            async with memory:
                await memory.update("s", messages(1, 1))
                scope.cancel()
                await anyio.sleep(1)
        with pytest.raises(MemoryClosed):
            await memory.history("s")

    at(way, main)


class Coroutines(Block):
    """An async block whose coroutine can cancel itself, or wait until it is released."""

    kind: str = "coroutines"
    gate: threading.Event
    cancelled: list[str] = []
    taken: list[int] = []

    async def get(self, scope: Scope, message: Message | None, limit: int) -> list[Recall]:
        await self._trouble()
        return [Recall(block=self.name, id="r", text="What it knows.")]

    async def update(self, scope: Scope, entries: Sequence[Entry]) -> None:
        await self._trouble()
        self.taken.extend(entry.seq for entry in entries)

    async def delete(self, scope: Scope) -> None:
        await self._trouble()
        self.taken[:] = [seq for seq in self.taken if seq <= scope.after]

    async def _trouble(self) -> None:
        if self.cancelled:
            task = asyncio.current_task()
            task.cancel()
        await asyncio.sleep(0)
        while not self.gate.is_set():
            await asyncio.sleep(0.002)


def with_coroutines(**fields: Any) -> tuple[AgentMemory, Coroutines]:
    block = Coroutines(gate=threading.Event(), cancelled=[], taken=[])
    overflow = FlushToLTM(blocks=[block], absorb="every_update")
    memory = AgentMemory(store="memory://", overflow=overflow, **fields)
    bound = memory.blocks["coroutines"]
    assert isinstance(bound, Coroutines)
    return memory, bound


@pytest.mark.parametrize("way", ["asyncio", "trio"])
def test_a_block_that_cancels_itself_does_not_cancel_its_caller(way: str) -> None:
    """Wrong: a block that cancels itself cancels its caller, so that `update` raises after storing,
    or `get` reports a timeout."""

    async def main() -> None:
        sync, block = with_coroutines()
        block.gate.set()
        async with AsyncAgentMemory(sync) as memory:
            await memory.update("s", messages(1, 1))
            block.cancelled.append("yes")
            assert (await memory.update("s", messages(2, 1))).end == 2
            (done,) = await memory.flush("s")
            assert "coroutine was cancelled" in str(done.error)
            warnings = (await memory.get("s", "hello")).warnings
            assert "'coroutines' failed: RuntimeError" in warnings[0]
            with pytest.raises(RuntimeError, match="coroutine was cancelled"):
                await memory.pop("s")
            block.cancelled.clear()
            await memory.flush("s")
            assert sorted(block.taken) == [1, 2]
            assert (await memory.get("s", "hello")).warnings == []

    at(way, main)


def test_an_async_block_that_hangs_times_out() -> None:
    """Wrong: a block that hangs blocks a call for ever, or keeps its lease."""
    memory, block = with_coroutines(recall_timeout=0.5, absorb_timeout=0.5)
    try:
        assert memory.update("s", messages(1, 2)).end == 2
        assert "did not answer" in memory.get("s", "hello").warnings[0]
        (done,) = memory.flush("s")
        assert done.error == "TimeoutError: The block 'coroutines' took longer than 0.5 s."
        with pytest.raises(TimeoutError):
            memory.pop("s")
        with pytest.raises(TimeoutError):
            memory.delete("s")
        assert memory.history("s") == []
        block.gate.set()
        wait_for_calls("coroutines")
        memory.delete("s")
        memory.update("s", messages(1, 2))
        memory.flush()
        assert block.taken == [1, 2]
        assert memory.stats().dead_letters == 0
    finally:
        block.gate.set()
        memory.close()


def test_resolve_works_inside_a_running_loop() -> None:
    """Wrong: inside a running loop the result or error of a block's coroutine is lost."""

    async def give(value: int) -> int:
        return value

    async def cancel() -> int:
        raise asyncio.CancelledError

    def resolved(value: int | Awaitable[int]) -> int:
        return resolve(value)

    async def main() -> None:
        assert resolved(give(1)) == 1
        with pytest.raises(RuntimeError, match="cancelled"):
            resolved(cancel())

    asyncio.run(main())
    assert resolved(give(2)) == 2
    assert resolved(3) == 3


@pytest.mark.parametrize("result", [1, 0])
def test_a_timed_out_call_is_undone_after_success_and_failure(result: int) -> None:
    """Wrong: a timed-out call is not undone if it fails, though it may have written a part."""
    gate, undone = threading.Event(), threading.Event()
    with pytest.raises(TimeoutError, match="'b' took longer"):
        TimeLimited().run("b", lambda: gate.wait() / result, 0.01, undone.set)
    assert not undone.is_set()
    gate.set()
    assert undone.wait(30)


def test_a_call_within_its_time_limit_raises_its_own_error() -> None:
    """Wrong: a block's own `TimeoutError` counts as the engine's, and the call is undone."""
    late: list[str] = []

    def fail(error: BaseException) -> Callable[[], None]:
        def call() -> None:
            raise error

        return call

    for error in (TimeoutError("mine"), KeyboardInterrupt(), SystemExit(3)):
        with pytest.raises(type(error)) as caught:
            TimeLimited().run("b", fail(error), 30, lambda: late.append("late"))
        assert caught.value is error
        with nullcontext() if isinstance(error, Exception) else pytest.raises(type(error)):
            assert TimeLimited().run_all({"b": fail(error)}, 30) == ({"b": error}, [])
    with pytest.raises(RuntimeError, match="cancelled"):
        TimeLimited().run("b", fail(asyncio.CancelledError()), 30, lambda: None)
    assert late == []
