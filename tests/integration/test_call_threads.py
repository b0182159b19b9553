"""The number of threads for calls to blocks and leases, and the effect of one that hangs."""

import os
import platform
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest

from agent_memory import AgentMemory, Message
from agent_memory.core.records import Entry, Recall, Scope
from agent_memory.engine.leases import Leases, Locks
from agent_memory.stores import MemoryStore
from agent_memory.testing.watching import watched
from tests.kit import SECONDS, Silent, started_threads

QUESTION = {"role": "user", "content": "What do they know?"}


class Meets(Silent):
    """Answers and absorbs when `meet` returns."""

    kind: str = "meets"
    meet: Any

    @property
    def recalls_pending(self) -> bool:
        return True  # else the engine searches the log too

    def get(self, scope: Scope, message: Message | None, limit: int) -> list[Recall]:
        self.meet()
        return [Recall(block=self.name, id="r", text=f"What {self.name} knows.")]

    def update(self, scope: Scope, entries: Sequence[Entry]) -> None:
        self.meet()


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[threading.Thread]]:
    """The threads that are started, in a process without idle threads."""
    with monkeypatch.context() as patch:
        patch.setattr("agent_memory.engine.leases._BEAT_SECONDS", SECONDS)
        yield started_threads(patch)


def opened(*meets: Callable[[], object], **fields: Any) -> AgentMemory:
    blocks = [Meets(name=name, meet=meet) for name, meet in zip("abc", meets, strict=False)]
    return AgentMemory(store="memory://", blocks=blocks, **fields)


def test_calls_reuse_idle_threads(started: list[threading.Thread]) -> None:
    """Wrong: each `get` or batch starts threads for its blocks, or one for the session's lease."""
    all_at_once = threading.Barrier(3).wait
    with opened(all_at_once, all_at_once, all_at_once, recall_timeout=SECONDS) as memory:
        for _ in range(9):
            assert len(memory.get("s", QUESTION, user_id="ada").recalls) == 3
        assert len(started) <= 5  # the call itself, the three blocks, and notes
        for flushes in (1, 8):  # at most: the call, two more blocks, three calls, renewing
            started.clear()
            for _ in range(flushes):  # on a busy machine, a thread may not be idle again in time
                memory.update("s", QUESTION, user_id="ada")
                assert [done.error for done in memory.flush("s")] == [None] * 3
            assert len(started) <= 7


def test_a_block_that_hangs_does_not_delay_other_blocks() -> None:
    """Wrong: a block that hangs delays the others, in `get` or in `flush`."""
    gate, others = threading.Event(), threading.Semaphore(0)
    meets = (gate.wait, others.release, others.release)
    with (
        opened(*meets, recall_timeout=SECONDS, absorb_timeout=SECONDS) as memory,
        ThreadPoolExecutor(4) as pool,
    ):
        memory.update("s", QUESTION, user_id="ada")
        try:
            gets = [pool.submit(memory.get, "s", QUESTION) for _ in range(3)]
            flush = pool.submit(memory.flush, "s")
            for _ in range(8):
                assert others.acquire(timeout=SECONDS)
            assert not any(call.done() for call in (*gets, flush))
        finally:
            gate.set()
        assert [len(get.result(SECONDS).recalls) for get in gets] == [3] * 3
        assert [done.error for done in flush.result(SECONDS)] == [None] * 3


def test_a_store_that_hangs_does_not_delay_other_stores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: leases expire because another store does not answer, or work ends before a pending
    renewal, which then takes the released lease again."""
    monkeypatch.setattr("agent_memory.engine.leases._BEAT_SECONDS", 0.01)
    gate, hangs, renewed = threading.Event(), threading.Event(), threading.Semaphore(0)
    held: list[str] = []

    def hang(step: str) -> None:
        if step == "before lease" and held:
            hangs.set()
            assert gate.wait(SECONDS)
            held.append("renewed")

    def note(step: str) -> None:
        if step in ("after lease", "after lock"):
            renewed.release()

    one, two = MemoryStore(), MemoryStore()
    for store in (one, two):
        with AgentMemory(store=store) as memory:
            memory.update("s", QUESTION)
    with ExitStack() as stack:
        stack.callback(gate.set)
        hold = ExitStack()
        lease = hold.enter_context(Leases(watched(one, hang)).hold("s"))
        held.append("held")
        assert hangs.wait(SECONDS)
        for kept in (Leases(watched(two, note)).hold("s"), Locks(watched(two, note)).held("l")):
            with kept:
                for _ in range(5):
                    assert renewed.acquire(timeout=SECONDS)
        with ThreadPoolExecutor(1) as pool:
            ended = pool.submit(hold.close)
            gate.set()
            ended.result(SECONDS)
        assert held[:2] == ["held", "renewed"]
        assert lease is not None
        assert one.lease("s", "another", 10)


_ARENAS = """
import ctypes, threading
from agent_memory.core.processes import share_arenas
share_arenas()
gate = threading.Barrier(8)
def work():
    gate.wait()
    [bytes(number) for number in range(1_000, 3_000)]
    gate.wait()
threads = [threading.Thread(target=work) for _ in range(8)]
for one in threads: one.start()
for one in threads: one.join()
libc = ctypes.CDLL(None)
libc.malloc_info(0, ctypes.c_void_p.in_dll(libc, "stdout"))
libc.fflush(None)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library has none")
@pytest.mark.parametrize(("told", "most"), [({}, 2), ({"MALLOC_ARENA_MAX": "1"}, 1)])
def test_threads_share_arenas(told: dict[str, str], most: int) -> None:
    """Wrong: each thread gets its own arena, whose memory a long-running service never returns, or
    `MALLOC_ARENA_MAX` has no effect."""
    given = {name: value for name, value in os.environ.items() if name != "MALLOC_ARENA_MAX"}
    done = subprocess.run(
        [sys.executable, "-c", _ARENAS], env={**given, **told}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert 1 <= done.stdout.count("<heap nr=") <= most
