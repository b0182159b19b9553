"""Blocks absorb a session in parallel, from one reading of its log."""

import threading
from collections.abc import Sequence
from typing import Any

from agent_memory import AgentMemory
from agent_memory.core.records import Entry, Scope
from agent_memory.engine.stats import Progress
from agent_memory.stores.memory import MemoryStore
from agent_memory.testing import FakeLLM
from tests.kit import Silent

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


def test_blocks_absorb_at_the_same_time() -> None:
    """Wrong: a slow block delays others, each reads the log, or a block changes another's batch."""
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
        assert sorted(store.reads) == [(0, 160), (160, 90)]
        assert [entry.message.model_extra for entry in memory.history("s")] == [
            {"tags": [n]} for n in range(250)
        ]


def test_a_flush_of_many_sessions_tells_how_far_it_is() -> None:
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


def test_a_flush_of_many_sessions_asks_the_embedder_for_many_at_once() -> None:
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
