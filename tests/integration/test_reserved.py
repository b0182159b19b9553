"""System collections: each one is on the list, and handled as the list says."""

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import agent_memory
from agent_memory import AgentMemory, ExtractiveMemory, FlushToLTM, VectorIndex
from agent_memory.core.limits import shared_session
from agent_memory.core.records import Entry, Record, Scope
from agent_memory.core.system_collections import (
    AUTHORS,
    FORGOTTEN,
    INDEXES,
    SYSTEM,
    SYSTEM_COLLECTIONS,
    SystemCollection,
    system_collection,
)
from agent_memory.engine.sharing.grants import Authors
from agent_memory.engine.stats import SharedMetrics
from agent_memory.engine.system_records import SystemRecords
from agent_memory.errors import InvalidSetting, ModelOutputInvalid
from agent_memory.ltm_blocks.versions import erase
from agent_memory.server.keys import KeyRing
from agent_memory.stores import MemoryStore
from agent_memory.testing import FakeLLM
from tests.integration.fact_model import Model
from tests.kit import Silent, model_at
from tests.kit import user as say

USER = "adacanary"
SHARED = str(shared_session("team", "t"))
NAMES = [collection.name for collection in SYSTEM_COLLECTIONS]
KEEPING = {
    "records", "put_records", "swap_record", "delete_records", "open_vectors", "put_vectors",
    "delete_vectors",
}  # fmt: skip
"""Calls of a store that name a collection."""


class Refusing(Silent):
    """A block that refuses secrets."""

    kind: str = "refusing"

    def update(self, scope: Scope, entries: Sequence[Entry]) -> None:
        if "secret" in entries[-1].message.text():
            raise ModelOutputInvalid("it makes no sense to me")
        last = entries[-1]
        at = last.session_id, last.seq, last.seq
        one = Record("id", scope.owner, *at, "x", (), last.created_at)
        self.resources.store.put_records(self.name, [one], lease=scope.lease)

    def delete(self, scope: Scope) -> None:
        erase(self.resources.store, self.name, scope)


@dataclass
class World:
    """A memory with every part in use, its store, and its store of system messages."""

    memory: AgentMemory
    store: MemoryStore
    system: MemoryStore

    def records(self, collection: SystemCollection) -> list[Record]:
        if collection is INDEXES:
            names = [name for name in self.store.vector_blocks() if name.startswith(INDEXES.name)]
            pages = [page for name in names for page in self.store.all_vectors(name)]
            return [record for records, _ in pages for record in records]
        store = self.system if collection is SYSTEM else self.store
        return [record for name, record in store.all_records() if name == collection.name]


@pytest.fixture
def world() -> Iterator[World]:
    store, system, model = MemoryStore(), MemoryStore(), Model()
    model.tell("secret", "Ada has a secret.", subject="user", category="secret")
    blocks = [ExtractiveMemory(), Refusing()]
    with FakeLLM(model) as fake:
        fields: dict[str, Any] = {"absorb_attempts": 1, "keep_contexts": True, **model_at(fake)}
        fields |= {"spending_limits": {"per_user": {"calls": 1_000}}, "system_store": system}
        with AgentMemory(store=store, overflow=FlushToLTM(blocks=blocks), **fields) as memory:
            system_message = {"role": "system", "content": "Be kind."}
            memory.update("s", [system_message, say("hello")], user_id=USER)
            memory.flush()
            memory.update("s", say("secret"))
            memory.flush()
            (secret,) = memory.user(USER).facts()
            memory.user(USER).forget(secret.id)
            memory.user(USER).notes().add("Likes tea.")
            memory.get("s", "hello", user_id=USER)
            share = memory.share("team")
            share.grant(USER, "write")
            share.agent(USER).update("t", say("hello"))
            with VectorIndex(store, dimension=2) as index:
                index.store({"id": "a", "vector": [1, 0]}, user_id=USER)
            memory.values(USER).put(("state",), "k", 1)
            KeyRing(store).create("Ada's phone", [USER], ["read"])
            KeyRing(store).create("the backend", ["*"], ["read", "write"])
            memory.describe("s", {"title": "Hello"})
            memory.update("gone", say("hello"), user_id=USER)
            memory.delete("gone")
            memory.components.worker(1).run_once()
            SharedMetrics(store).add(memory.components.counted())
            yield World(memory, store, system)


def test_the_package_uses_no_unlisted_system_collection() -> None:
    """Wrong: a module uses a system collection that deletion, export and migration do not know."""
    found = {}
    root = Path(agent_memory.__file__).parent
    for path in root.rglob("*.py"):
        source = path.read_text(encoding="utf-8")
        if not any(f".{name}" in source for name in KEEPING):
            continue  # parsing is slow
        nodes = list(ast.walk(ast.parse(source)))
        keeps = any(isinstance(node, ast.Attribute) and node.attr in KEEPING for node in nodes)
        texts = [node.value for node in nodes if isinstance(node, ast.Constant)]
        named = [text for text in texts if re.fullmatch(r"_[a-z]+(_[a-z]*)*", str(text))]
        if keeps and named and path.parent != root / "testing":
            found[path.relative_to(root).as_posix()] = named
    assert found == {}


def test_a_block_cannot_use_the_name_of_a_system_collection() -> None:
    """Wrong: a user's block replaces the engine's own records."""
    for name in NAMES:
        with pytest.raises(InvalidSetting, match="name"):
            Refusing(name=name)
        assert system_collection(name) is not None
    assert system_collection(f"{INDEXES.name}mine") is INDEXES
    assert system_collection("notes") is system_collection("_notes_") is None


def test_every_system_collection_is_listed_and_used(world: World) -> None:
    """Wrong: the list of system collections has an unused one, or lacks a used one."""
    for collection in SYSTEM_COLLECTIONS:
        records = world.records(collection)
        assert records, collection.name
        sessions = {record.session_id for record in records} & {"s", SHARED}
        assert bool(sessions) == collection.goes_with_session, collection.name
    for store in (world.store, world.system):
        names = {name for name, _ in store.all_records()} | store.vector_blocks().keys()
        assert all(system_collection(name) for name in names if name.startswith("_"))


def test_deleting_a_session_clears_its_system_records(world: World) -> None:
    """Wrong: a system collection keeps data of a deleted session."""
    world.memory.delete("s")
    world.memory.components.deletion.session(SHARED)
    for collection in SYSTEM_COLLECTIONS:
        sessions = {record.session_id for record in world.records(collection)}
        assert not sessions & {"s", SHARED}, collection.name
        if not collection.goes_with_session:
            assert world.records(collection), collection.name


def test_deleting_a_user_clears_the_users_system_records(world: World) -> None:
    """Wrong: a system collection keeps data of a deleted user."""
    theirs = {
        collection.name
        for collection in SYSTEM_COLLECTIONS
        if any(USER in repr(record) for record in world.records(collection))
    }
    said_to_be = {collection.name for collection in SYSTEM_COLLECTIONS if collection.goes_with_user}
    assert theirs == said_to_be - {AUTHORS.name}  # it has a digest of the user's name
    assert Authors(world.store).first(USER, SHARED) is not None
    world.memory.delete_user(USER)
    for collection in SYSTEM_COLLECTIONS:
        assert USER not in repr(world.records(collection)), collection.name
    assert Authors(world.store).first(USER, SHARED) is None


def test_erasing_a_session_covers_every_system_collection(world: World) -> None:
    """Wrong: erasing a session misses one of the system collections."""
    SystemRecords(world.store).erase_session("s")
    for collection in SYSTEM_COLLECTIONS:
        if collection.goes_with_session and collection.is_facts:
            assert not [one for one in world.records(collection) if one.session_id == "s"]
    assert [one for one in world.records(AUTHORS) if one.session_id == SHARED]
    assert not world.records(FORGOTTEN)
