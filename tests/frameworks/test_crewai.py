"""CrewAI's storage over a memory. `make suites` runs CrewAI's own tests."""

import asyncio
from collections.abc import Iterator
from copy import deepcopy
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from crewai.memory.storage.backend import EmbeddingDimensionMismatchError, StorageBackend
from crewai.memory.types import MemoryRecord
from crewai.memory.unified_memory import Memory

from agent_memory import AgentMemory
from agent_memory.integrations.crewai import AgentMemoryStorage

EAST, NORTH, NORTHEAST = [1.0, 0.0], [0.0, 1.0], [0.6, 0.8]


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[AgentMemory]:
    with AgentMemory(store=f"sqlite:///{tmp_path}/m.db", blocks=[]) as opened:
        yield opened


def record(name: str, vector: list[float] | None = None, **fields: Any) -> MemoryRecord:
    return MemoryRecord(id=name, content=f"about {name}", embedding=vector, **fields)


def ids_of(storage: AgentMemoryStorage, *args: Any, **kwargs: Any) -> list[str]:
    return [one.id for one, _ in storage.search(*args, **kwargs)]


def test_records_are_returned_unchanged(memory: AgentMemory) -> None:
    """Wrong: a field, a time or an embedding is lost, or an update leaves two records."""
    storage = AgentMemoryStorage(memory, user_id="ana")
    assert isinstance(storage, StorageBackend)
    first = record(
        "a", NORTHEAST, scope="/crew/x", categories=["k"], metadata={"n": [1, None]},
        importance=0.9, source="me", private=True, created_at=datetime(2026, 1, 2, 3, 4, 5, 6),
    )  # fmt: skip
    storage.save([first, record("bare")])
    kept = storage.get_record("a")
    assert kept.embedding is not None
    assert kept.model_dump() == first.model_dump()
    assert kept.embedding == pytest.approx(NORTHEAST, rel=1e-3)
    long = [30.0, 40.0]
    storage.update(first.model_copy(update={"embedding": long}))
    storage.touch_records(["a"])
    storage.update(first.model_copy(update={"embedding": None}))  # the embedding is kept
    again = storage.get_record("a")
    assert again.embedding == pytest.approx(long, rel=1e-3)
    with pytest.raises(TypeError):
        storage.save([record("set", metadata={"a": {1}})])
    assert storage.list_records(offset=-1) == []
    assert storage.get_record("z") is None
    storage.update(first.model_copy(update={"scope": "/crew/y", "embedding": None}))
    assert ids_of(storage, NORTHEAST, scope_prefix="/crew/x") == []
    assert storage.search(NORTHEAST, scope_prefix="/crew/y")[0][1] == pytest.approx(1)
    assert storage.count() == 2
    storage.touch_records(["a", "z"])
    touched = storage.get_record("a")
    assert touched.last_accessed > first.last_accessed
    assert AgentMemoryStorage(memory, user_id="ben").count() == 0
    memory.delete_user("ana")
    assert storage.count() == 0
    assert ids_of(storage, NORTHEAST) == []


def test_searches_filter_records_by_scope_and_conditions(memory: AgentMemory) -> None:
    """Wrong: "/crew" includes "/crewmates", or records that miss a condition hide others."""
    storage = AgentMemoryStorage(memory)
    day = datetime(2026, 1, 1, tzinfo=UTC)
    storage.save([record(f"near{at}", EAST, scope="/crewmates") for at in range(60)])
    storage.save(
        [
            record("one", NORTHEAST, scope="/crew/a/b", categories=["k", "l"], created_at=day),
            record("two", NORTH, scope="/crew/c", metadata={"env": "prod"}),
            record("top", NORTH, scope="/", categories=["l"]),
        ]
    )
    assert ids_of(storage, EAST, scope_prefix="/crew", limit=2) == ["one", "two"]
    assert ids_of(storage, EAST, scope_prefix="crew/", min_score=0.5) == ["one"]
    assert ids_of(storage, EAST, categories=["l"]) == ["one", "top"]
    assert ids_of(storage, EAST, metadata_filter={"env": "prod"}) == ["two"]
    assert storage.list_scopes("/crew") == ["/crew/a", "/crew/c"]
    assert storage.list_categories("/crew") == {"k": 1, "l": 1}
    info = storage.get_scope_info("/crew/")
    assert (info.path, info.record_count, info.oldest_record) == ("/crew", 2, day)
    assert [one.id for one in storage.list_records("/crew", limit=1, offset=1)] == ["one"]
    assert storage.delete(scope_prefix="/crew", older_than=datetime(2026, 1, 2)) == 1
    assert storage.delete(record_ids=["two"], categories=["k"]) == 0
    storage.reset("/crewmates")
    assert ids_of(storage, EAST) == ["top", "two"]


def test_embeddings_of_another_length_are_rejected(memory: AgentMemory) -> None:
    """Wrong: vectors of two models are mixed, part of a save is stored, a reset does not help, or a
    vector of zeros is refused."""
    storage = AgentMemoryStorage(memory)
    assert storage.search(EAST) == []
    with pytest.raises(EmbeddingDimensionMismatchError):
        storage.save([record("a", EAST), record("b", [1.0])])
    storage.save([record("a", EAST)])
    with pytest.raises(EmbeddingDimensionMismatchError):
        storage.save([record("b", [1.0])])
    with pytest.raises(EmbeddingDimensionMismatchError):
        storage.search([1.0])
    assert storage.count() == 1
    storage.save([record("zeros", [0.0, 0.0])])
    assert storage.search([0.0, 0.0]) == []
    assert ids_of(storage, EAST) == ["a"]
    assert storage.count() == 2
    storage.reset()
    storage.save([record("b", [1.0])])
    assert ids_of(storage, [1.0]) == ["b"]


def test_crewai_uses_the_storage(memory: AgentMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: CrewAI's `Memory` fails, a copied crew has another database, or async calls differ."""
    monkeypatch.setenv("CREWAI_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("CREWAI_TRACING_ENABLED", "false")
    ours = Memory(
        storage=AgentMemoryStorage(memory, user_id="ana"),
        embedder=lambda texts: [EAST if "boat" in text else NORTH for text in texts],
        root_scope="/crew/sailing",
    )
    told = {"scope": "/facts", "categories": ["k"], "importance": 0.5}
    ours.remember("The boat is blue.", **told)
    ours.remember("Tea at five.", **told)
    (best, *_) = ours.recall("which boat?", scope="/facts", depth="shallow")
    assert best.record.content == "The boat is blue."
    assert best.record.scope == "/crew/sailing/facts"
    storage = AgentMemoryStorage(memory, user_id="ana")
    assert deepcopy(storage) is storage

    async def go() -> None:
        await storage.asave([record("c", EAST, scope="/other")])
        assert [one.id for one, _ in await storage.asearch(EAST, scope_prefix="/other")] == ["c"]
        assert await storage.adelete(record_ids=["c"]) == 1

    asyncio.run(go())
    ours.close()
    ours.reset()
    assert storage.count() == 0
