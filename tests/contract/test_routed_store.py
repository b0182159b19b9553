"""Blocks with databases of their own: the contract, and what only that promises."""

from contextlib import closing
from pathlib import Path

import pytest

from agent_memory import AgentMemory, AgentMemoryConfig, operations
from agent_memory.errors import UnknownStore
from agent_memory.ltm_blocks import NoteMemory, StaticMemory, VectorMemory
from agent_memory.stores import MemoryStore, SQLStore, Store
from agent_memory.stores.split import RoutedStore
from agent_memory.testing import RecordStoreContract, VectorStoreContract

BLOCKS = ("f", "facts", "notes", "theirs", "v", "w", "w_2")
SECRET = "The vault's word is xylophone."


class TestRouted(RecordStoreContract, VectorStoreContract):
    """`RoutedStore` overrides only records and vectors. Every block of the contract is routed."""

    @pytest.fixture
    def store(self) -> Store:
        return RoutedStore(MemoryStore(), dict.fromkeys(BLOCKS, MemoryStore()))

    @pytest.fixture
    def elsewhere(self) -> Store:
        namespace = "elsewhere"
        return RoutedStore(MemoryStore(namespace), dict.fromkeys(BLOCKS, MemoryStore(namespace)))


@pytest.fixture
def places(tmp_path: Path) -> dict[str, str]:
    return {name: f"sqlite:///{tmp_path / name}.db" for name in ("main", "facts", "vectors")}


def blocks_at(places: dict[str, str]) -> list[object]:
    return [
        StaticMemory(facts=["The office opens at eight."], store=places["facts"]),
        NoteMemory(store=places["facts"]),
        VectorMemory(store=places["vectors"]),
    ]


def open_at(places: dict[str, str], *blocks: object, **fields: object) -> AgentMemory:
    return AgentMemory(places["main"], blocks=blocks or blocks_at(places), **fields)


def fill(memory: AgentMemory) -> None:
    memory.update("s", {"role": "user", "content": SECRET}, user_id="ana")
    memory.remember("Ana is allergic to peanuts.", user_id="ana", session_id="s")
    memory.flush()


def recalled(memory: AgentMemory, user_id: str = "ana") -> set[tuple[str, str]]:
    asked = "What is the vault's word, when does the office open, and what is Ana allergic to?"
    found = memory.search(asked, user_id=user_id, least=0)
    return {(one.block, one.text) for one in found}


def bytes_in(places: dict[str, str], name: str, text: str) -> bool:
    path = Path(places[name].removeprefix("sqlite:///"))
    every = path.parent.glob(f"{path.name}*")
    return any(text.encode() in one.read_bytes() for one in every)


def test_a_block_with_its_own_database_recalls_the_same_records(places: dict[str, str]) -> None:
    """Wrong: a block with its own database recalls other records."""
    with AgentMemory("memory://", blocks=[*map(_at_home, blocks_at(places))]) as memory:
        fill(memory)
        expected = recalled(memory)
    assert {block for block, _ in expected} == {"static", "notes", "vector"}
    with open_at(places) as memory:
        fill(memory)
        assert recalled(memory) == expected
    with open_at(places) as memory:
        assert recalled(memory) == expected
        assert recalled(memory, "ben") == {("static", "The office opens at eight.")}
    with closing(SQLStore(places["main"])) as main:
        assert {block for block, _ in main.all_records()}.isdisjoint({"static", "notes"})
        assert main.vector_blocks() == {}
    assert not bytes_in(places, "main", "peanuts")


def test_a_deletion_reaches_all_databases(places: dict[str, str]) -> None:
    """Wrong: after `delete_user` a block's own database still has the user's data."""
    with open_at(places) as memory:
        fill(memory)
        assert all(part.state != "failed" for part in memory.delete_user("ana").parts)
        assert recalled(memory) == {("static", "The office opens at eight.")}
    for name in places:
        assert not bytes_in(places, name, "xylophone"), name
        assert not bytes_in(places, name, "peanuts"), name


def test_old_notes_are_deleted_after_a_block_gets_its_own_database(places: dict[str, str]) -> None:
    """Wrong: notes stored before the block got its own database survive their user."""
    with open_at(places, NoteMemory()) as memory:
        memory.remember("Ana is allergic to peanuts.", user_id="ana")
    with open_at(places, NoteMemory(store=places["facts"])) as memory:
        assert memory.search("peanuts", user_id="ana") == []
        memory.delete_user("ana")
    assert not bytes_in(places, "main", "peanuts")


def test_a_snapshot_includes_separate_databases(places: dict[str, str], tmp_path: Path) -> None:
    """Wrong: a snapshot lacks records in blocks' own databases."""
    with open_at(places) as memory:
        fill(memory)
        memory.session("s", "ana").export(tmp_path / "s.jsonl")
        expected = recalled(memory)
        memory.delete("s")
    with AgentMemory("memory://", blocks=[*map(_at_home, blocks_at(places))]) as memory:
        operations.import_session(memory, tmp_path / "s.jsonl")
        assert recalled(memory) == expected


def test_an_invalid_vector_database_url_is_refused_immediately() -> None:
    """Wrong: an invalid address fails only at the first message."""
    with pytest.raises(UnknownStore, match="three slashes"):
        AgentMemoryConfig(blocks=[VectorMemory(store="sqlite://vectors.db")])
    with pytest.raises(UnknownStore, match="Qdrant"):
        VectorMemory(store="vectors.db")
    config = AgentMemoryConfig(blocks=[VectorMemory(store="postgresql://me:secret@host/db")])
    assert "secret" not in repr(config)


def _at_home(block: object) -> object:
    return block.model_copy(update={"store": None})  # type: ignore[attr-defined]
