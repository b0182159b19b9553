"""Workers absorb sessions in parallel, and put off those that only have to wait."""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import time
from typing import Any

import pytest

from agent_memory import AgentMemory, Head, Message
from agent_memory.core.records import Entry, Scope
from agent_memory.engine.processing.session_work import Processed, longest_wait
from agent_memory.engine.processing.worker import Worker
from agent_memory.engine.stats import Progress
from agent_memory.stores.sql.store import MemoryStore
from agent_memory.testing import FakeLLM
from tests.kit import Silent

SAID = {"role": "user", "content": "I moved to Lisbon, where the trams are yellow."}


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[AgentMemory]:
    with AgentMemory(store=f"sqlite:///{tmp_path}/m.db", max_tokens=600) as memory:
        yield memory


def due(memory: AgentMemory) -> list[Head]:
    return memory.components.store.due()


def process(memory: AgentMemory, session_id: str) -> Processed:
    return memory.components.work.process(session_id, scheduled=True)


def test_waiting_session_is_postponed(memory: AgentMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: a waiting session stays due, or putting it off takes a lease."""
    store = memory.components.store
    assert store.schedule(memory.update("s", SAID, user_id="ana"), 0)
    leased: list[Any] = []
    monkeypatch.setattr(memory.components.store, "lease", lambda *args, **_: leased.append(args))
    assert process(memory, "s").again is not None
    memory.update("s", SAID, user_id="ana")
    assert (due(memory), leased) == ([], [])


def test_an_idle_session_is_not_postponed(memory: AgentMemory) -> None:
    """Wrong: a session that has been idle for ten minutes is put off, so it is never absorbed."""
    long_ago = datetime.now(UTC) - timedelta(minutes=11)
    message = Message(role="user", content="Long ago.", created_at=long_ago)
    drafts = memory._appender.drafts([message], "s", "ana")
    memory.components.store.append("s", drafts, "ana")
    assert [(one.block, one.last) for one in process(memory, "s").absorbed] == [("vector", 1)]


def test_a_session_with_pending_work_is_not_postponed(memory: AgentMemory) -> None:
    """Wrong: an overflow that a killed process left waits until its session is idle."""
    store = memory.components.store
    said = memory._appender.drafts(
        [{**SAID, "content": f"{n} {SAID['content']}"} for n in range(80)], "long", "ana"
    )
    store.append("long", said, "ana")
    going = store.append("going", said[:1], "ana")
    assert store.move(replace(going, deleting=True))
    assert process(memory, "long").absorbed
    assert process(memory, "going").absorbed == []
    assert [head.session_id for head in store.sessions()] == ["long"]


def test_a_worker_postpones_sessions_that_only_wait(memory: AgentMemory) -> None:
    """Wrong: a worker leaves a session due that only waits."""
    for n in range(5):
        memory.update(f"s{n}", SAID, user_id="ana")
    parts = memory.components
    parts.store.schedule_all()
    worker = Worker(parts.store, parts.work, lambda: None, 1)
    worker.run_once()
    worker.stop()
    assert due(memory) == []


def test_an_update_without_pending_work_makes_no_session_due(memory: AgentMemory) -> None:
    """Wrong: each message makes its session due, which costs a worker a read and a write."""
    memory.update("s", SAID, user_id="ana")
    memory.update("s", SAID, key="once")
    assert due(memory) == []
    soon = time() + 600
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("agent_memory.stores.sql.reading.now_micros", lambda: round(soon * 1e6))
        assert [one.session_id for one in due(memory)] == ["s"]


def test_an_update_with_pending_work_makes_its_session_due(tmp_path: Path) -> None:
    """Wrong: after a crash, or a slow worker, messages wait for ten minutes beside idle workers."""
    fields: dict[str, Any] = {"max_tokens": 600, "overflow_mode": "background"}
    with AgentMemory(f"sqlite:///{tmp_path}/m.db", **fields) as memory:
        memory._background.stop()
        memory.update("s", [{**SAID, "content": f"{n} {SAID['content']}"} for n in range(80)])
        assert [one.session_id for one in due(memory)] == ["s"]


@pytest.mark.parametrize(
    ("absorb", "waits", "idle", "kept", "seconds"),
    [("overflow", [0.0], 10.0, None, 600), ("overflow", [0.0], None, None, 600),
     ("overflow", [0.0], 5.0, None, 300), ("overflow", [0.0], 5.0, 60.0, 60),
     ("overflow", [], 5.0, None, 0), ("every_update", [0.0, 300.0], 10.0, None, 0),
     ("every_update", [300.0], 10.0, None, 300), (2_000, [0.0], 10.0, None, 600)],
)  # fmt: skip
def test_a_session_is_postponed_until_its_next_work(
    absorb: Any, waits: list[float], idle: float | None, kept: float | None, seconds: float
) -> None:
    """Wrong: a session is put off for longer than until its next work."""
    assert longest_wait(absorb, waits, idle, kept) == seconds


TALK = [{"role": "user", "content": f"note {n}", "tags": [n]} for n in range(250)]


class Reader(MemoryStore):
    """A store that records which parts of logs are read."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[tuple[int, int | None]] = []

    def read(self, session_id: str, *, after: int = 0, limit: int | None = None) -> list[Entry]:
        self.reads.append((after, limit))
        return super().read(session_id, after=after, limit=limit)


class Listener(Silent):
    """Absorbs a batch only while all other listeners absorb it too."""

    kind: str = "listener"
    heard: list[list[int]]
    meeting: Any = None

    def update(self, scope: Scope, entries: Sequence[Entry]) -> None:
        if self.meeting is not None:
            self.meeting.wait(20)
        self.heard.append([entry.seq for entry in entries])
        for entry in entries:  # a block may change its own copy of the batch
            (entry.message.model_extra or {})["tags"].append("heard")
            assert (entry.message.model_extra or {})["tags"] == [entry.seq - 1, "heard"]


def test_blocks_absorb_in_parallel() -> None:
    """Wrong: a slow block delays others, a batch is read twice, or blocks share its messages."""
    meeting, store = threading.Barrier(3), Reader()
    blocks = [Listener(name=name, heard=[], meeting=meeting) for name in ("a", "b", "c")]
    with AgentMemory(store=store, blocks=blocks) as memory:
        memory.update("s", TALK)
        store.reads.clear()
        done = memory.flush("s")
        assert [(one.block, one.first, one.last, one.error) for one in done] == [
            (name, 1, 250, None) for name in "abc"
        ]
        bound = [memory.blocks[name] for name in "abc"]
        batches = [list(range(1, 161)), list(range(161, 251))]
        assert [block.heard for block in bound if isinstance(block, Listener)] == [batches] * 3
        assert sorted(store.reads) == [(0, 160)] * 3 + [(160, 90)] * 3
        assert [entry.message.model_extra for entry in memory.history("s")] == [
            {"tags": [n]} for n in range(250)
        ]


def test_a_flush_of_many_sessions_reports_progress() -> None:
    """Wrong: a long flush reports no progress, or its progress omits errors."""

    class Half(Silent):
        kind: str = "half"

        def update(self, scope: Scope, entries: Sequence[Entry]) -> None:
            if scope.session_id == "b":
                raise ValueError("not this one")

    with AgentMemory("memory://", blocks=[Half()]) as memory:
        for session_id in "abc":
            memory.update(session_id, TALK[0])
        told: list[Progress] = []
        done = memory.flush(progress=told.append)
    assert [(one.session_id, one.done, one.total) for one in told] == [
        ("a", 1, 3), ("b", 2, 3), ("c", 3, 3),
    ]  # fmt: skip
    assert [one.error for one in told] == [one.error for one in done]
    assert "not this one" in str(told[1].error)


def test_a_flush_of_many_sessions_batches_embedding_requests() -> None:
    """Wrong: each session costs an embedding request of its own, so that 100,000 take hours."""
    with (
        FakeLLM() as fake,
        AgentMemory(
            "memory://", embedding="openai/e", api_base=fake.api_base, api_key="k"
        ) as memory,
    ):
        for number in range(60):
            memory.update(f"s{number}", {"role": "user", "content": f"The number is {number}."})
        assert all(one.error is None for one in memory.flush())
        assert 0 < memory.stats().usage.embedding_calls < 6
