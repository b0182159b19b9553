"""Tools, routing and deletion of a composite: each call reaches the right member."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from agent_memory import AgentMemory, CompositeMemory, Message
from agent_memory.core.records import Recall, Scope
from agent_memory.errors import ConfigError, InvalidInput, StoreError, StoreUnavailable
from agent_memory.ltm_blocks import Block, FileMemory, NoteMemory, VectorMemory, WorkingMemory
from agent_memory.ltm_blocks.base import ManualBlock
from agent_memory.stores.sql.store import MemoryStore
from agent_memory.testing import FakeLLM, watched
from tests.integration.composing import composed, opened
from tests.kit import Echo, at_length, model_at, texts
from tests.kit import user as said


@pytest.fixture
def both() -> Iterator[CompositeMemory]:
    home = AgentMemory("memory://", blocks=[NoteMemory(), WorkingMemory()])
    company = AgentMemory("memory://", blocks=[NoteMemory(), WorkingMemory(), FileMemory()])
    with CompositeMemory({"home": home, "company": company, "drafts": FileMemory()}) as both:
        yield both


def names(both: CompositeMemory, **who: Any) -> list[str]:
    return [one["function"]["name"] for one in both.tools("s", **who)]


def test_tools_of_all_members_have_distinct_names(both: CompositeMemory) -> None:
    """Wrong: two members' tools share a name, so that one member cannot be written to."""
    found = names(both, user_id="ana")
    assert len(set(found)) == len(found)
    assert {"memory_write", "company_memory_write", "company_files", "drafts"} <= set(found)
    assert {"memory_read_message", "working_write"} & set(found)
    assert not [one for one in found if one.startswith("company_working")]
    assert "company_memory_read_message" not in found
    assert not [one for one in names(both) if one.startswith("company_")]


def test_each_tool_works_in_its_memory(both: CompositeMemory) -> None:
    """Wrong: a tool writes into another member, or for another user."""
    home, company = both.memories["home"], both.memories["company"]
    both.call_tool("s", "memory_write", {"text": "At home."}, user_id="ana")
    both.call_tool("s", "company_memory_write", {"text": "At work."}, user_id="ana")
    create = {"command": "create", "path": "/memories/a.txt", "file_text": "a draft"}
    both.session("s", "ana").call_tool("drafts", create)

    def notes(memory: AgentMemory, user_id: str) -> list[str]:
        return [note.text for note in memory.user(user_id).notes().all()]

    assert (notes(home, "ana"), notes(company, "ana")) == (["At home."], ["At work."])
    assert notes(company, "ben") == []
    assert company.sessions() == []
    told = both.call_tool("s", "company_memory_read", {"query": "work"}, user_id="ana")
    assert "At work." in told
    assert "There is no tool" in both.call_tool("s", "company_working_write", {}, user_id="ana")
    assert "a.txt" in both.call_tool("s", "drafts", {"command": "view", "path": "/memories"},
                                     user_id="ana")  # fmt: skip


def test_a_completion_runs_tools_of_members_and_name_clashes_raise() -> None:
    """Wrong: `completion` does not run a member's tool, or two tools may share a name."""
    with FakeLLM() as fake:
        home = AgentMemory("memory://", **model_at(fake))
        company = AgentMemory("memory://", blocks=[NoteMemory()])
        with CompositeMemory({"home": home, "company": company}) as both:
            fake.call(("company_memory_write", {"text": "Ana works here."}))
            fake.reply("Noted.")
            tools = both.tools("s", user_id="ana")
            both.completion("s", "Tell the company.", user_id="ana", tools=tools)
            assert [n.text for n in company.user("ana").notes().all()] == ["Ana works here."]
    home = AgentMemory("memory://", blocks=[FileMemory(name="files")])
    members = {"home": home, "x": FileMemory(name="memory_read")}
    with CompositeMemory(members) as both, pytest.raises(ConfigError, match="memory_read"):
        both.tools("s", user_id="ana")


def test_sessions_are_stored_in_the_member_that_the_route_names() -> None:
    """Wrong: a session is written to or read from another member than `route` names."""
    one, two = opened(), opened()

    def route(session_id: str, user_id: str | None) -> str:
        return "two" if session_id.startswith("b") else "one"

    with composed({"one": one, "two": two}, route=route) as both:
        for name in ("a1", "b1", "a2"):
            both.update(name, said(f"in {name}"))
        assert [head.session_id for head in one.sessions()] == ["a1", "a2"]
        assert [head.session_id for head in two.sessions()] == ["b1"]
        assert [both.history(name)[0].message.text() for name in ("a1", "b1")] == ["in a1", "in b1"]
        assert [message.text() for message in both.pop("b1")] == ["in b1"]
        both.delete("a1")
        assert [head.session_id for head in one.sessions()] == ["a2"]


def test_without_a_route_the_first_memory_is_the_home() -> None:
    """Wrong: without `route` the home is not the first memory, or is a block."""
    members: dict[str, AgentMemory | Block] = {"pins": NoteMemory(), "a": opened(), "b": opened()}
    with composed(members) as both:
        both.update("s", said("hello"))
        assert texts(both.memories["a"], "s") == ["hello"]
        assert both.memories["b"].sessions() == []
    with composed({"a": opened(), "b": opened()}, route="b") as both:
        both.update("s", said("hello"))
        assert texts(both.memories["b"], "s") == ["hello"]


@pytest.mark.parametrize("named", ["three", "", "rules"])
def test_an_unknown_name_stores_nothing(named: str) -> None:
    """Wrong: a `route` that returns an unknown name stores the message in some member."""
    members: dict[str, AgentMemory | Block] = {
        "one": opened(), "two": opened(), "rules": NoteMemory(),
    }  # fmt: skip
    with composed(members, route=lambda session_id, user_id: named) as both:
        with pytest.raises(ConfigError, match="one, two"):
            both.update("s", said("hello"))
        with pytest.raises(ConfigError):
            both.get("s")
        assert [memory.sessions() for memory in both.memories.values()] == [[], []]


def test_a_route_by_user_finds_existing_sessions() -> None:
    """Wrong: a call without a user misses a session placed by user, or confuses two users'."""
    one, two = opened(), opened()
    route: Callable[[str, str | None], str] = lambda s, u: "two" if u == "ada" else "one"  # noqa: E731
    with composed({"one": one, "two": two}, route=route) as both:
        both.update("s", said("first"), user_id="ada")
        both.update("s", said("second"))
        assert texts(two, "s") == ["first", "second"]
        assert one.sessions() == []
        assert both.get("s").messages[-1].text() == "second"
        assert both.home("s") is two
        assert [message.text() for message in both.pop("s")] == ["second"]
        assert both.flush("s") == []
        both.update("t", said("of nobody"))
        assert texts(one, "t") == ["of nobody"]
        both.delete("s")
        assert two.sessions() == []
        two.update("u", said("ada's"), user_id="ada")
        one.update("u", said("bob's"), user_id="bob")
        assert [both.home("u", user) for user in ("ada", "bob")] == [two, one]
        assert [head.user_id for head in both.sessions()] == [None, "bob", "ada"]


def test_a_session_id_of_two_users_requires_a_user_id() -> None:
    """Wrong: without a user, a call deletes one of several sessions that share an id."""
    members: dict[str, AgentMemory | Block] = {name: opened() for name in ("none", "ada", "bob")}
    with composed(members, route=lambda session_id, user_id: user_id or "none") as both:
        for user in ("ada", "bob"):
            both.update("s", said(f"{user}'s"), user_id=user)
        with pytest.raises(InvalidInput, match="2 users"):
            both.delete("s")
        assert both.get("s", user_id="bob").messages[0].text() == "bob's"
        both.update("t", said("ada's"), user_id="ada")
        both.memories["bob"].update("t", said("not by the rule"), user_id="ada")
        both.memories["bob"].update("u", said("not by the rule"), user_id="ada")
        assert both.home("t") is both.memories["ada"]
        assert both.history("u") == []


@hypothesis_settings(max_examples=at_length(15))
@given(st.data())
def test_pages_of_sessions_are_one_list(given_: st.DataObject) -> None:
    """Wrong: a page of sessions omits one, repeats one, or is out of order."""
    ids = given_.draw(st.lists(st.text("abz-_9", min_size=1, max_size=3), unique=True))
    size = given_.draw(st.integers(1, 4))
    names = ["one", "two", "three"]

    def route(session_id: str, user_id: str | None) -> str:
        return names[len(session_id) % 3]

    members: dict[str, AgentMemory | Block] = {name: opened() for name in names}
    with composed(members, route=route) as both:
        for n, session_id in enumerate(ids):
            both.update(session_id, said("hello"), user_id=("ada", "bob")[n % 2])
        listed: list[str] = []
        while page := both.sessions(limit=size, after=listed[-1] if listed else None):
            assert len(page) <= size
            listed += [head.session_id for head in page]
        assert listed == sorted(ids)
        adas = [head.session_id for head in both.sessions(user_id="ada")]
        assert adas == sorted(ids[::2])
        assert both.sessions(limit=0) == []


CANARY = re.compile(rb"canary[0-9a-f]{12}")


def in_files(folder: Path) -> set[bytes]:
    return {word for file in folder.iterdir() for word in CANARY.findall(file.read_bytes())}


def pinned(both: CompositeMemory, user_id: str) -> list[str]:
    return [note.text for note in both.blocks["pinned"].open(Scope(user_id)).all()]


def test_delete_user_leaves_nothing(tmp_path: Path) -> None:
    """Wrong: a member or its file still holds a user's log, note or vector."""
    words = {"ada": "canary0a1b2c3d4e5f", "bob": "canary5f4e3d2c1b0a"}

    def member(name: str) -> AgentMemory:
        return opened(Echo(), VectorMemory(), store=f"sqlite:///{tmp_path / name}.db")

    members: dict[str, AgentMemory | Block] = {
        "base": member("base"), "home": member("home"), "other": member("other"),
        "pinned": NoteMemory(),
    }  # fmt: skip
    with composed(members, route="home") as both:
        for user, word in words.items():
            both.update(f"s-{user}", [said(f"My code is {word}."), said("Bye.")], user_id=user)
            both.memories["other"].update(f"o-{user}", said(f"Their {word}."), user_id=user)
            both.blocks["pinned"].open(Scope(user)).add(f"Pinned: {word}.")
        both.flush()
        assert in_files(tmp_path) == {word.encode() for word in words.values()}
        assert pinned(both, "ada") == [f"Pinned: {words['ada']}."]
        both.delete_user("ada")
        both.delete_user("ada")
        assert both.search(words["ada"], user_id="ada") == []
        assert both.get("n", "My code?", user_id="ada").recalls == []
        assert pinned(both, "ada") == []
        assert len(both.search(words["bob"], user_id="bob", limit=99)) > 1
        assert pinned(both, "bob") == [f"Pinned: {words['bob']}."]
    assert in_files(tmp_path) == {words["bob"].encode()}


def test_member_blocks_are_called_for_ends_and_deletions() -> None:
    """Wrong: a member that is a block is not called at the end or deletion of a session or user."""
    told: list[tuple[str, Scope]] = []

    class Keeper(ManualBlock):
        kind: str = "keeper"

        def get(self, scope: Scope, message: Message | None, limit: int) -> list[Recall]:
            return []

        def end(self, scope: Scope) -> None:
            told.append(("end", scope))

        def delete(self, scope: Scope) -> None:
            told.append(("delete", scope))

    with composed({"home": opened(), "keeper": Keeper()}) as both:
        both.update("s", said("hello"), user_id="ada")
        both.end("s")
        both.delete("s")
        both.delete_user("ada")
    session = Scope("ada", "s")
    assert told == [("end", session), ("delete", session), ("delete", Scope("ada"))]


def test_a_deletion_tries_all_members_and_names_the_failed_one() -> None:
    """Wrong: a member that fails stops the deletion in others, or the error does not name it."""
    down: list[str] = []

    def fail(step: str) -> None:
        if down:
            raise StoreUnavailable(f"down at {step}")

    store = watched(MemoryStore(), fail)
    members: dict[str, AgentMemory | Block] = {
        name: opened(Echo(), store=store if name == "two" else "memory://")
        for name in ("one", "two", "three")
    }
    with composed(members, route="two") as both:
        for memory in both.memories.values():
            memory.update("s", said("The anchor."), user_id="ada")
        both.flush()
        down.append("now")
        with pytest.raises(StoreError, match=r"delete_user\(\) failed in 'two': StoreUnavailable"):
            both.delete_user("ada")
        with pytest.raises(StoreError, match=r"flush\(\) failed in 'two': StoreUnavailable"):
            both.flush()
        down.clear()
        for name in ("one", "three"):
            assert both.memories[name].stats().entries == 0
        both.delete_user("ada")
        assert [memory.stats().entries for memory in both.memories.values()] == [0, 0, 0]
        both.update("s", said("again"), user_id="ada")
        assert texts(both.memories["two"], "s") == ["again"]
