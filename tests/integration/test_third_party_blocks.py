"""Third-party blocks get all that our own blocks get from the engine."""

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import pytest
from pydantic import Field

from agent_memory import AgentMemory, Message, Tool, operations
from agent_memory.core.forms import Count, Form
from agent_memory.core.records import Lease, Recall, Record, Scope, Span
from agent_memory.core.tools import Arguments
from agent_memory.errors import ConfigError, InvalidInput, InvalidSnapshot
from agent_memory.ltm_blocks import Block, NoteMemory, StaticMemory, VectorMemory
from agent_memory.ltm_blocks.base import NoteBlock
from agent_memory.ltm_blocks.keyed_records import CollectionBlock, KeyedRecords
from agent_memory.ltm_blocks.notes import Notes
from agent_memory.ltm_blocks.versions import version_of
from agent_memory.stores import MemoryStore, VectorStore
from tests.integration.snapshot_world import bodies_of, exported, left_in, resummed
from tests.kit import opened

ADA, BEN = Scope("ada", "s"), Scope("ben", "t")


class Entered(Form):
    """The metadata of an account's record."""

    account: str
    cents: Count


class Book(Arguments):
    """Arguments of `ledger_book`."""

    account: str
    cents: int = Field(ge=0)


class Ledger(CollectionBlock):
    """Sums by account; a handle is a set of keyed records."""

    kind: Literal["ledger"] = "ledger"
    of_sessions: bool = False
    remembers: bool = False

    @property
    def of_session(self) -> bool:
        return self.of_sessions

    @property
    def versioned(self) -> bool:
        return self.remembers

    def open(self, scope: Scope) -> KeyedRecords:
        return KeyedRecords(self.resources, self.name, scope, "user")

    def get(self, scope: Scope, message: Message | None, limit: int) -> list[Recall]:
        return [Recall(self.name, one.id, one.text) for one in self.open(scope).all()[:limit]]

    def tools(self) -> Sequence[Tool]:
        return [Tool(f"{self.name}_book", "Book a sum.", Book, self._book)]

    def validate_import(self, record: Record) -> Record:
        entered = Entered.model_validate(record.metadata)
        if record.text != _said(entered.account, entered.cents):
            raise InvalidInput("The sum is not what the text says.")
        return replace(record, metadata={**record.metadata, "account": entered.account.lower()})

    def _book(self, scope: Scope, asked: Book) -> str:
        return self.book(scope, asked.account, asked.cents).id

    def book(self, scope: Scope, account: str, cents: int) -> Record:
        kept = {"account": account, "cents": cents}
        return self.open(scope).put(account, _said(account, cents), kept)


def _said(account: str, cents: int) -> str:
    return f"{account}: {cents}"


class Jotter(CollectionBlock, NoteBlock):
    """Notes with a limit of its own."""

    kind: Literal["jotter"] = "jotter"

    def open(self, scope: Scope) -> Notes:
        keyed = KeyedRecords(self.resources, self.name, scope, "user")
        return Notes(keyed, NoteMemory(max_notes=2))

    def get(self, scope: Scope, message: Message | None, limit: int) -> list[Recall]:
        return [Recall(self.name, one.id, one.text) for one in self.open(scope).all()[:limit]]

    def forget(self, scope: Scope, what: str | Span, why: str) -> list[str]:
        gone = isinstance(what, str) and self.open(scope).delete(what)
        return [str(what)] if gone else []


def ledger(memory: AgentMemory) -> Ledger:
    return memory.blocks["ledger"]


def accounts(memory: AgentMemory, scope: Scope = ADA) -> list[str]:
    return [one.text for one in ledger(memory).open(scope).all()]


def changed(lines: list[str], **fields: Any) -> list[str]:
    """Return a snapshot with valid checksums and another first record."""
    bodies = copy.deepcopy(bodies_of(lines))
    first = next(one for one in bodies if one.get("kind") == "fact")
    for name, value in fields.items():
        (first["metadata"] if name in first["metadata"] else first)[name] = value
    return resummed(bodies)


@pytest.fixture
def lines() -> list[str]:
    with opened("memory://", Ledger()) as memory:
        memory.update("s", {"role": "user", "content": "I bought tea."}, user_id="ada")
        ledger(memory).book(ADA, "Tea", 350)
        return exported(memory)


def test_a_tool_writes_and_a_handle_reads_for_one_user(lines: list[str]) -> None:
    """Wrong: a third-party block has no handle or tools, or serves another user."""
    with opened("memory://", Ledger()) as memory:
        booked = {"account": "Tea", "cents": 350}
        memory.call_tool("s", "ledger_book", booked, user_id="ada")
        assert accounts(memory) == ["Tea: 350"]
        assert accounts(memory, BEN) == []
        assert "bad arguments" in memory.call_tool("s", "ledger_book", {"cents": -1})


def test_a_snapshot_keeps_the_records_of_a_third_party_block(lines: list[str]) -> None:
    """Wrong: a snapshot loses or changes a third-party block's record."""
    with opened("memory://", Ledger()) as memory:
        operations.import_session(memory, lines)
        (tea,) = ledger(memory).open(ADA).all()
        assert (tea.text, tea.metadata) == ("Tea: 350", {"account": "tea", "cents": 350})


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"cents": -1}, "line 4: its metadata's `cents` is not usable"),
        ({"cents": "350"}, "line 4: its metadata's `cents` is not usable"),
        ({"metadata": {"account": "Tea"}}, "line 4: its metadata's `cents` is not usable"),
        ({"text": "Tea: 3"}, r"line 4: The sum is not what the text says\. Nothing was imported"),
    ],
)
def test_a_crafted_record_is_refused(lines: list[str], fields: dict[str, Any], why: str) -> None:
    """Wrong: an import gives a block an invalid record, or leaves part of the session."""
    store = MemoryStore()
    with opened(store, Ledger()) as memory:
        with pytest.raises(InvalidSnapshot, match=why):
            operations.import_session(memory, changed(lines, **fields))
        assert not left_in(store)
        assert memory.sessions() == accounts(memory) == []
        operations.import_session(memory, lines)
        assert accounts(memory) == ["Tea: 350"]


def test_a_block_with_a_cache_is_notified_of_an_import(lines: list[str]) -> None:
    """Wrong: a block with a cache is not notified of an import."""
    own = [{**one, "id": "own"} if one.get("kind") == "fact" else one for one in bodies_of(lines)]
    for remembers in (True, False):
        with opened(MemoryStore(), Ledger(remembers=remembers)) as memory:
            operations.import_session(memory, resummed(own))
            assert (version_of(memory._store, "ledger", "user:ada") is not None) == remembers


def test_notes_are_stored_in_the_block_that_accepts_them() -> None:
    """Wrong: a model's notes bypass a third-party block, or cannot be deleted there."""
    with opened("memory://", Ledger(), Jotter()) as memory:
        for text in ("Likes tea.", "Likes figs."):
            assert "Noted" in memory.call_tool("s", "memory_write", {"text": text}, user_id="ada")
        assert "the maximum is 2" in memory.call_tool("s", "memory_write", {"text": "Third."})
        tea, figs = memory.user("ada").notes().all()
        assert {block for block, _ in memory._store.all_records()} == {"jotter", "_registry"}
        assert {recall.block for recall in memory.get("s", "tea").recalls} == {"jotter"}
        assert memory.call_tool("s", "memory_forget", {"id": tea.id}) == f"Forgotten: {tea.id}."
        assert memory.user("ada").notes().all() == [figs]
        assert "No note or fact" in memory.call_tool("s", "memory_forget", {"id": tea.id})


class Elsewhere(VectorMemory):
    """Store vectors in a place of its own, and declare which it can search."""

    kind: Literal["elsewhere"] = "elsewhere"  # type: ignore[assignment]
    takes: bool = True

    def bind(self, resources: Any) -> Any:
        return super().bind(replace(resources, vectors=lambda _: _PLACES[self.name]))

    def validate_vectors(self, dimension: int, model: str) -> bool:
        return self.takes and super().validate_vectors(dimension, model)


class SeparateVectors(MemoryStore):
    """A place without sessions, and therefore without leases."""

    def put_vectors(self, *given: Any, lease: Lease | None = None) -> None:
        super().put_vectors(*given)

    def delete_vectors(self, block: str, *, lease: Lease | None = None, **which: Any) -> None:
        super().delete_vectors(block, **which)


_PLACES: dict[str, VectorStore] = {}


@pytest.mark.parametrize("takes", [True, False])
def test_a_block_may_store_and_import_vectors_in_its_own_database(takes: bool) -> None:
    """Wrong: vectors in a block's own database are lost, misplaced, or cannot be searched."""
    _PLACES["elsewhere"] = SeparateVectors()
    with opened("memory://", Elsewhere()) as memory:
        memory.update("s", {"role": "user", "content": "My bike is red."}, user_id="ada")
        memory.flush()
        lines = exported(memory)
    _PLACES["elsewhere"] = place = SeparateVectors()
    with opened("memory://", Elsewhere(takes=takes)) as memory:
        cursors = operations.import_session(memory, lines).cursors
        assert cursors == ({"elsewhere": 1} if takes else {})
        assert memory._store.vector_blocks() == {}
        assert [len(page) for page, _ in place.all_vectors("elsewhere")] == [1] * takes
        memory.flush()
        (found,) = memory.search("bike", user_id="ada")
        assert found.text == "user: My bike is red."


@pytest.mark.parametrize("block", [StaticMemory(facts=["x"]), VectorMemory()])
def test_a_block_without_a_handle_raises_a_config_error(block: Block) -> None:
    """Wrong: a block without a handle, or whose `bind` returns nothing, raises a Python error."""
    unbound = type("Unbound", (VectorMemory,), {"bind": lambda *_: None})
    with pytest.raises(ConfigError, match="`bind` of Unbound returned a NoneType"):
        opened("memory://", unbound())
    with (
        opened("memory://", block) as memory,
        pytest.raises(ConfigError, match=f"{block.name!r} cannot be opened"),
    ):
        memory.user("ada").open(block.name)


def test_tools_of_a_session_are_not_offered_without_one() -> None:
    """Wrong: an MCP client is offered a tool that needs a session."""
    pytest.importorskip("mcp")
    from agent_memory.mcp.tools import offers

    for of_sessions in (True, False):
        with opened("memory://", Ledger(of_sessions=of_sessions)) as memory:
            assert ("ledger_book" in offers(memory)) == (not of_sessions)
