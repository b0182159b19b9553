"""Exceptions that signals raise during calls, and signal handlers that call a memory."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from agent_memory import AgentMemory, Block, FlushToLTM, NoteMemory, VectorMemory
from agent_memory.core.records import Entry, Scope
from agent_memory.errors import StoreUnavailable
from tests.kit import SECONDS, Silent, until
from tests.kit import user as said

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="has no such signals")


@pytest.mark.long
@pytest.mark.timeout(300)
def test_an_interrupt_causes_no_hang_and_no_lost_message(tmp_path: Path) -> None:
    """Wrong: after an interrupt, memories or forks hang, or a log lost or doubled messages."""
    command = [sys.executable, "-m", "tests.integration.interrupting", "--count", "600"]
    command += ["--every", "200", "--store", f"sqlite:///{tmp_path}/memory.db"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


class Slow(Silent):
    """Calls the next function of `DURING` while it absorbs."""

    kind: str = "slow"

    def update(self, scope: Scope, entries: Sequence[Entry]) -> None:
        if DURING:
            DURING.pop()()


DURING: list[Callable[[], object]] = []
"""Functions to call while the block absorbs."""


class Stopped(BaseException):
    """Raised by a signal handler."""


class Late(Exception):
    """A timeout error, as many programs raise it."""


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[AgentMemory]:
    DURING.clear()
    path = f"sqlite:///{tmp_path / 'memory.db'}"
    strategy = FlushToLTM(blocks=[Slow()], absorb="every_update")
    with AgentMemory(store=path, overflow=strategy, blocks=[]) as memory:
        yield memory


@pytest.fixture
def on_signal() -> Iterator[Callable[[Callable[[], Any]], None]]:
    before = signal.getsignal(signal.SIGUSR1)

    def handle(call: Callable[[], Any]) -> None:
        signal.signal(signal.SIGUSR1, lambda *_: call())

    yield handle
    signal.signal(signal.SIGUSR1, before)


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGUSR1)


@pytest.mark.parametrize("error", [Stopped, Late])
def test_an_interrupted_call_continues_until_its_lease_is_released(
    memory: AgentMemory, on_signal: Callable[[Callable[[], Any]], None], error: type[BaseException]
) -> None:
    """Wrong: an interrupted call keeps its lease until it expires."""
    went_on = threading.Event()

    def stop() -> None:
        raise error

    def absorb() -> None:
        interrupt()
        assert left.wait(SECONDS)
        went_on.set()

    left = threading.Event()
    on_signal(stop)
    DURING.append(absorb)
    with pytest.raises(error) as kept:
        memory.update("s", said("one"))
    left.set()
    assert went_on.wait(SECONDS)
    assert memory.flush("s") == []
    assert memory.update("s", said("two")).end == 2
    assert [one.message.text() for one in memory.history("s")] == ["one", "two"]
    assert kept.value.__traceback__ is not None


class Counting(Slow):
    """Records the size of each batch."""

    def update(self, scope: Scope, entries: Sequence[Entry]) -> None:
        BATCHES.append(len(entries))
        super().update(scope, entries)


BATCHES: list[int] = []
"""The number of entries in each batch."""


def test_a_flush_that_was_interrupted_ends_after_its_batch(
    tmp_path: Path, on_signal: Callable[[Callable[[], Any]], None]
) -> None:
    """Wrong: an interrupted flush goes on in the background with all further batches."""

    def stop() -> None:
        raise Stopped

    def absorb() -> None:
        interrupt()
        assert left.wait(SECONDS)

    BATCHES.clear()
    left = threading.Event()
    on_signal(stop)
    blocks: list[Block] = [Counting(name="one"), Counting(name="two")]
    with AgentMemory(store=f"sqlite:///{tmp_path}/m.db", blocks=blocks) as memory:
        memory.update("s", [said(f"{n}") for n in range(350)])
        DURING.append(absorb)
        with pytest.raises(Stopped):
            memory.flush("s")
        DURING.clear()
        left.set()
        until(lambda: memory.components.store.lease("s", "w", 60))
        memory.components.store.release("s", "w")
        cut = sum(BATCHES)
        assert cut < 700
        memory.flush("s")
        assert sum(BATCHES) == 700
        assert memory.flush("s") == []


@pytest.mark.parametrize("call", ["flush", "delete", "update", "get", "pop"])
def test_a_handler_does_not_wait_for_the_call_it_interrupts(
    memory: AgentMemory, on_signal: Callable[[Callable[[], Any]], None], call: str
) -> None:
    """Wrong: a signal handler waits for a lease or a lock that its own thread holds."""
    calls: dict[str, Callable[[], Any]] = {
        "flush": lambda: memory.flush("s"),
        "delete": lambda: memory.delete("s"),
        "update": lambda: memory.update("s", said("meanwhile")),
        "get": lambda: memory.get("s", "one"),
        "pop": lambda: memory.pop("s"),
    }
    done: list[object] = []
    on_signal(lambda: done.append(calls[call]()))
    handled = threading.Event()

    def absorb() -> None:
        interrupt()
        handled.wait(0.05)  # long enough for the handler to wait

    DURING.append(absorb)
    memory.update("s", said("one"))
    assert len(done) == 1
    left = [one.message.text() for one in memory.history("s")]
    assert left == {"delete": [], "pop": [], "update": ["one", "meanwhile"]}.get(call, ["one"])


def test_a_handler_cannot_write(
    tmp_path: Path, on_signal: Callable[[Callable[[], Any]], None]
) -> None:
    """Wrong: a write in a signal handler waits for ever for the write that it interrupted."""
    url = f"sqlite:///{tmp_path / 'memory.db'}"
    with AgentMemory(store=url, blocks=[]) as memory:
        memory.update("s", said("one"))
        store = memory.components.store
        refused: list[str] = []

        def handler() -> None:
            with pytest.raises(StoreUnavailable) as error:
                memory.update("s", said("within"))
            refused.append(str(error.value))
            assert len(memory.history("s")) == 1

        on_signal(handler)
        store._database.write(lambda _: interrupt())
        assert ["handler" in told for told in refused] == [True]
        assert memory.update("s", said("two")).end == 2


@pytest.mark.timeout(40)
@pytest.mark.parametrize("where", ["within a transaction", "before it", "in the memory store"])
def test_a_handler_does_not_wait_for_a_lock_of_its_own_thread(
    tmp_path: Path, on_signal: Callable[[Callable[[], Any]], None], where: str
) -> None:
    """Wrong: a handler's call waits for a thread that needs the interrupted code's lock."""
    in_memory = where == "in the memory store"
    url = "memory://" if in_memory else f"sqlite:///{tmp_path / 'memory.db'}"
    with AgentMemory(store=url, blocks=[VectorMemory(), NoteMemory()]) as memory:
        memory.update("s", [said("one"), said("two")], user_id="ana")
        calls: list[Callable[[], Any]] = [
            memory.flush,
            lambda: memory.flush("s"),
            lambda: memory.pop("s"),
            lambda: memory.user("ana").notes().add("tea"),
            lambda: memory.delete("s"),
            lambda: memory.delete_user("ana"),
            lambda: memory.update("t", said("within")),
        ]
        done: list[str] = []

        def handler() -> None:
            assert memory.get("s", "one", user_id="ana").tokens > 0
            for call in calls:
                try:
                    call()
                    done.append("done")
                except StoreUnavailable as error:
                    done.append("refused" if "handler" in str(error) else str(error))

        on_signal(handler)
        data = memory.components.store._kernel._database
        interrupted = data.write if where == "within a transaction" else data.alone
        (data.read if in_memory else interrupted)(lambda _: interrupt())
        assert done == ["done" if in_memory else "refused"] * len(calls)
        assert memory.update("u", said("after")).end == 1


def test_an_interrupted_pop_removes_no_newer_message(
    memory: AgentMemory, on_signal: Callable[[Callable[[], Any]], None]
) -> None:
    """Wrong: an interrupted `pop` removes a message that was stored after it."""

    def stop() -> None:
        raise Stopped

    def absorb() -> None:
        absorbing.set()
        assert going_on.wait(SECONDS)

    absorbing, going_on = threading.Event(), threading.Event()
    memory.update("s", said("one"))
    DURING.append(absorb)
    other = threading.Thread(target=lambda: memory.update("s", said("two")), daemon=True)
    other.start()
    assert absorbing.wait(SECONDS)  # another thread holds the lease now
    on_signal(stop)
    timer = threading.Timer(0.2, interrupt)

    def pop() -> None:
        timer.start()
        memory.pop("s")

    with pytest.raises(Stopped):
        pop()
    third = threading.Thread(target=lambda: memory.update("s", said("three")), daemon=True)
    third.start()
    going_on.set()
    for thread in (other, third):
        thread.join(SECONDS)
    memory.flush("s")
    assert [one.message.text() for one in memory.history("s")] == ["one", "two", "three"]
