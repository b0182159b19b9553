"""A new embedding model with vectors in Qdrant."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from agent_memory import AgentMemory, AgentMemoryConfig, FlushToLTM, VectorMemory, operations
from agent_memory.errors import DimensionMismatch
from agent_memory.operations import rebuild
from agent_memory.stores import MemoryStore, Store
from agent_memory.stores.qdrant.connection import Connection
from agent_memory.stores.qdrant.store import embedding
from agent_memory.testing import FakeLLM, watched
from tests.kit import Cut, user
from tests.servers.qdrant import StandIn

OLD, NEW = "openai/old", "openai/new"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("QDRANT_API_KEY", raising=False)
    monkeypatch.setattr("agent_memory.engine.processing.worker.POLL_SECONDS", 0.02)


@pytest.fixture(scope="module")
def fake() -> Iterator[FakeLLM]:
    with FakeLLM(dimension=8) as fake:
        yield fake


class Rig:
    """A session store, a stand-in for Qdrant, and memories with one of two embedding models."""

    def __init__(self, server: StandIn, fake: FakeLLM) -> None:
        self.server = server
        self.store: Store = MemoryStore()
        self._fake = fake

    def settings(self, model: str, store: Store | None = None) -> AgentMemoryConfig:
        overflow = FlushToLTM(blocks=[VectorMemory(store=self.server.url)], absorb="every_update")
        return AgentMemoryConfig(
            store=store or self.store,
            overflow=overflow,
            embedding=model,
            api_base=self._fake.api_base,
            api_key="k",
        )

    def memory(self, model: str) -> AgentMemory:
        return AgentMemory(self.settings(model))

    def held(self) -> dict[str, list[str]]:
        return {
            embedding(name)[1].removeprefix("openai-"): sorted(
                point.payload["body"].split('"')[3] for point in self.server.points(name)
            )
            for name in self.server.collections
        }


@pytest.fixture
def rig(fake: FakeLLM) -> Iterator[Rig]:
    with StandIn() as server:
        yield Rig(server, fake)


def talk(rig: Rig, sessions: int = 3) -> list[str]:
    """Sessions of two messages each, absorbed under the old model."""
    with rig.memory(OLD) as memory:
        for n in range(sessions):
            memory.update(f"s{n}", [user(f"fact {n}"), user(f"wish {n}")], user_id="ada")
    return sorted(f"user: {what} {n}" for n in range(sessions) for what in ("fact", "wish"))


def recalled(memory: AgentMemory) -> list[str]:
    asked = "hello: a fact, a wish, what was said"
    found = memory.search(asked, user_id="ada", limit=100, least=0.0)
    return sorted(one.text for one in found)


def test_a_rebuild_with_another_model_keeps_every_message(rig: Rig) -> None:
    """Wrong: a rebuild loses messages, or a process with the old settings does not report it."""
    everything = talk(rig)
    with rig.memory(OLD) as old:
        assert recalled(old) == everything
        assert [step.error for step in rebuild(rig.settings(NEW), "vector")] == [None] * 3
        assert rig.held() == {"new": everything}
        old.update("s0", user("said to the old one"))
        assert recalled(old) == []
        assert any("DimensionMismatch" in warning for warning in old.get("s0", "fact").warnings)
    with pytest.raises(DimensionMismatch, match="replay"):
        rig.memory(OLD)
    with rig.memory(NEW) as new:
        new.flush()
        assert recalled(new) == sorted([*everything, "user: said to the old one"])
        assert operations.dead_letters(new) == []


def test_a_rebuild_survives_any_interruption(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: an interrupted rebuild skips sessions, or cannot be repeated."""
    monkeypatch.setattr("agent_memory.engine.leases.LEASE_SECONDS", 0.005)
    reached, steps = Connection.reached, 0

    def watch(name: str) -> None:
        nonlocal steps
        steps -= 1
        if steps <= 0:
            raise Cut(name)

    @contextmanager
    def cut(self: Connection) -> Iterator[Any]:
        watch("before Qdrant")
        with reached(self) as client:
            yield client
        watch("after Qdrant")

    for step in range(2, 400, 7):
        everything = talk(rig, sessions=2)
        steps = step
        monkeypatch.setattr(Connection, "reached", cut)
        whole = False
        try:
            list(rebuild(rig.settings(NEW, watched(rig.store, watch)), "vector"))
            whole = True
        except Cut:
            pass
        monkeypatch.setattr(Connection, "reached", reached)
        time.sleep(0.01)
        progress = list(rebuild(rig.settings(NEW), "vector"))
        assert all(one.error is None for one in progress), step
        assert rig.held() == {"new": everything}, step
        assert rig.store.records("_notes", "replays") == []
        rig.store = MemoryStore()
        for name in rig.server.collections:
            rig.server._client.delete_collection(name)
        if whole:
            break
    assert step > 50
