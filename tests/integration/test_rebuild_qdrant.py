"""A new embedding model with vectors in Qdrant: filled separately, then swapped."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from agent_memory import AgentMemory, AgentMemoryConfig, FlushToLTM, VectorMemory, operations
from agent_memory.errors import DimensionMismatch
from agent_memory.operations import rebuild
from agent_memory.stores import MemoryStore
from agent_memory.stores.base import Store
from agent_memory.stores.qdrant.collections import embedding
from agent_memory.stores.qdrant.connection import Connection
from agent_memory.testing import FakeLLM
from agent_memory.testing.watching import watched
from tests.kit import SECONDS, Cut, until, user
from tests.servers.qdrant import Request, StandIn

OLD, NEW, OTHER = "openai/old", "openai/new", "openai/other"
ALIAS = "agent_memory_default_vector"


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

    def settings(self, model: str, store: Store | None = None, **fields: Any) -> AgentMemoryConfig:
        blocks = [VectorMemory(store=self.server.url)]
        fields |= {"embedding": model, "api_base": self._fake.api_base, "api_key": "k"}
        overflow = FlushToLTM(blocks=blocks, absorb="every_update")
        return AgentMemoryConfig(store=store or self.store, overflow=overflow, **fields)

    @contextmanager
    def memory(self, model: str, **fields: Any) -> Iterator[AgentMemory]:
        settings = self.settings(model, **fields)
        given = {name: getattr(settings, name) for name in settings.model_fields_set}
        with AgentMemory(**given) as memory:
            yield memory

    def held(self) -> dict[str, list[str]]:
        return {
            embedding(name)[1].removeprefix("openai-"): sorted(
                point.payload["body"].split('"')[3] for point in self.server.points(name)
            )
            for name in self.server.collections
        }

    @property
    def roles(self) -> tuple[str, str]:
        """The models of the collections that are read and written."""
        aliases = self.server.aliases
        both = aliases[ALIAS], aliases[f"{ALIAS}.written"]
        recalled, written = (embedding(name)[1].removeprefix("openai-") for name in both)
        return recalled, written


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


def test_swapped_in_whole(rig: Rig) -> None:
    """Wrong: during a rebuild, processes with the old settings recall less."""
    everything = talk(rig)
    with rig.memory(OLD) as old:
        rebuilding = rebuild(rig.settings(NEW), "vector")
        for done in range(3):
            next(rebuilding)
            assert recalled(old) == everything
            assert rig.roles == ("old", "new")
            assert len(rig.held()["new"]) == 2 * (done + 1)
        with rig.memory(OLD) as late:  # a process that restarts meanwhile
            assert recalled(late) == everything
            assert late.get("s0", "fact").warnings == []
        with rig.memory(NEW) as new:
            assert recalled(new) == everything
        old.update("s0", user("said to the old one"))
        old.update("s new", user("said in a new session"), user_id="ada")
        warnings = old.get("s0", "fact").warnings
        assert any("is being rebuilt for 'openai-new'" in warning for warning in warnings)
        assert rig.held()["old"] == everything
        switches = len([r for r in rig.server.requests if r.path == "/collections/aliases"])
        assert list(rebuilding) == []
        after = [r for r in rig.server.requests if r.path == "/collections/aliases"][switches:]
        assert [len(request.body["actions"]) for request in after] == [1]
        assert rig.roles == ("new", "new")
        everything += ["user: said to the old one", "user: said in a new session"]
        assert rig.held() == {"new": sorted(everything)}  # its end checks all sessions
        assert recalled(old) == []
        assert any("DimensionMismatch" in warning for warning in old.get("s0", "fact").warnings)
        with pytest.raises(DimensionMismatch, match="replay"), rig.memory(OLD):
            pass
    with rig.memory(NEW) as new:
        new.flush()
        assert recalled(new) == sorted(everything)
        assert operations.dead_letters(new) == []


def test_cut_short_at_any_step(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: an interrupted rebuild loses vectors in use, skips sessions, or cannot be repeated."""
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
        if rig.roles[0] == "old":
            with rig.memory(OLD) as old:
                assert recalled(old) == everything, step
        time.sleep(0.01)
        progress = list(rebuild(rig.settings(NEW), "vector"))
        assert all(one.error is None for one in progress), step
        assert rig.roles == ("new", "new"), step
        assert rig.held() == {"new": everything}, step
        assert rig.store.records("_notes", "replays") == []
        rig.store = MemoryStore()
        for name in rig.server.collections:
            rig.server._client.delete_collection(name)
        if whole:
            break
    assert step > 50


def test_deletion_meanwhile(rig: Rig) -> None:
    """Wrong: data deleted during a rebuild stays in the old or the new vectors."""
    talk(rig)
    for model in (OLD, NEW):
        with rig.memory(OLD) as memory:
            memory.update("s of eve", user("of eve"), user_id="eve")
            memory.update("s of bob", user("of bob"), user_id="bob")
            memory.update("s9", [user("fact 9"), user("popped 9")], user_id="ada")
        with rig.memory(OLD) as old:
            rebuilding = rebuild(rig.settings(NEW), "vector")
            list(zip(range(6), rebuilding, strict=False))
            assert {len(texts) for texts in rig.held().values()} == {10}
            with rig.memory(model) as memory:
                memory.delete_user("eve")
                memory.delete("s of bob")
                memory.pop("s9")
            for texts in rig.held().values():
                assert not [text for text in texts if "eve" in text or "bob" in text], texts
                assert not [text for text in texts if "popped" in text], texts
                assert len(texts) == 7
            assert len(recalled(old)) == 7
            rebuilding.close()  # abandoned: back to the old vectors
        list(rebuild(rig.settings(OLD), "vector"))
        assert list(rig.held()) == ["old"]
        with rig.memory(OLD) as memory:
            memory.delete("s9")


def test_who_looked_before_and_writes_after(rig: Rig) -> None:
    """Wrong: a message that is absorbed while a rebuild begins is missing from the new vectors."""
    talk(rig)
    begun = threading.Event()
    steps: list[str | None] = []

    def run() -> None:
        steps.extend(step.error for step in rebuild(rig.settings(NEW), "vector"))

    thread = threading.Thread(target=run)

    def before(request: Request) -> None:
        if str(request) == "POST /collections/aliases":
            begun.set()
        if "said at" in str(request.body) and not begun.is_set():
            thread.start()
            assert begun.wait(SECONDS)  # it has read, but not yet written
            until(lambda: rig.roles == ("old", "new"))

    # the stand-in answers one request at a time, but calls `before` for several
    rig.server.before = before
    with rig.memory(OLD) as old:
        old.update("s1", user("said at the wrong moment"))
        thread.join(SECONDS)
    assert steps == [None, None, None]
    assert "user: said at the wrong moment" in rig.held()["new"]
    assert list(rig.held()) == ["new"]


def test_an_outage_swaps_nothing(rig: Rig, fake: FakeLLM, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: an outage during a rebuild replaces the vectors in use with incomplete ones."""
    monkeypatch.setattr("tenacity.nap.time", SimpleNamespace(sleep=lambda seconds: None))
    everything = talk(rig)
    rebuilding = rebuild(rig.settings(NEW), "vector")
    next(rebuilding)
    fake.outage("refuse", only="embeddings")
    try:
        errors = [step.error for step in rebuilding]
    finally:
        fake.clear()
    assert len(errors) == 3  # two sessions, and one that is still pending
    assert all(error and "ModelUnavailable" in error for error in errors)
    assert rig.roles == ("old", "new")
    assert rig.held()["old"] == everything
    assert all(step.error is None for step in rebuild(rig.settings(NEW), "vector"))
    assert rig.held() == {"new": everything}


def test_messages_that_cannot_be_embedded_hold_nothing_up(rig: Rig, fake: FakeLLM) -> None:
    """Wrong: one message that the model refuses blocks a rebuild forever."""
    everything = talk(rig)
    rebuilding = rebuild(rig.settings(NEW, absorb_attempts=3), "vector")
    next(rebuilding)
    fake.fail(400, times=4)  # the replays of s1 and s2, and s1 until it is a dead letter
    errors = [step.error or "" for step in rebuilding]
    assert len(errors) == 2
    assert all("ModelRefused" in error for error in errors)
    assert rig.roles == ("new", "new")
    with rig.memory(NEW) as memory:
        (letter,) = operations.dead_letters(memory)
        assert letter.attempts == 3
        operations.retry(memory, letter.block)
        memory.flush()
    assert rig.held() == {"new": everything}


# Outages of Qdrant
