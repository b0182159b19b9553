"""The tools of a composite's members: named so that none hides another, each for its memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from agent_memory import AgentMemory, CompositeMemory, FileMemory, NoteMemory, WorkingMemory
from agent_memory.errors import ConfigError
from agent_memory.testing import FakeLLM


@pytest.fixture
def both() -> Iterator[CompositeMemory]:
    home = AgentMemory("memory://", blocks=[NoteMemory(), WorkingMemory()])
    company = AgentMemory("memory://", blocks=[NoteMemory(), WorkingMemory(), FileMemory()])
    with CompositeMemory({"home": home, "company": company, "drafts": FileMemory()}) as both:
        yield both


def names(both: CompositeMemory, **who: Any) -> list[str]:
    return [one["function"]["name"] for one in both.tools("s", **who)]


def test_no_tool_hides_another(both: CompositeMemory) -> None:
    """Wrong: of two memories one cannot be written to, or a tool that needs a session is offered
    where there is none."""
    found = names(both, user_id="ana")
    assert len(set(found)) == len(found)
    assert {"memory_write", "company_memory_write", "company_files", "drafts"} <= set(found)
    assert {"memory_read_message", "working_write"} & set(found)
    assert not [one for one in found if one.startswith("company_working")]
    assert "company_memory_read_message" not in found
    assert not [one for one in names(both) if one.startswith("company_")]


def test_each_tool_works_in_its_memory(both: CompositeMemory) -> None:
    """Wrong: what a model writes into one memory lies in another, or in another user's; or a
    session begins where there is none."""
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
    assert "At work." in both.call_tool(
        "s", "company_memory_read", {"query": "work"}, user_id="ana"
    )
    assert "There is no tool" in both.call_tool("s", "company_working_write", {}, user_id="ana")
    assert "a.txt" in both.call_tool("s", "drafts", {"command": "view", "path": "/memories"},
                                     user_id="ana")  # fmt: skip


def test_a_completion_runs_the_tools_of_all() -> None:
    """Wrong: a call of another member's tool is handed back to the caller."""
    with FakeLLM() as fake:
        home = AgentMemory("memory://", model="openai/m", api_base=fake.api_base, api_key="k")
        company = AgentMemory("memory://", blocks=[NoteMemory()])
        with CompositeMemory({"home": home, "company": company}) as both:
            fake.call(("company_memory_write", {"text": "Ana works here."}))
            fake.reply("Noted.")
            tools = both.tools("s", user_id="ana")
            both.completion("s", "Tell the company.", user_id="ana", tools=tools)
            assert [n.text for n in company.user("ana").notes().all()] == ["Ana works here."]


def test_names_that_clash_are_told() -> None:
    """Wrong: of two tools of one name the model gets one, by chance."""
    home = AgentMemory("memory://", blocks=[FileMemory(name="files")])
    members = {"home": home, "x": FileMemory(name="memory_read")}
    with CompositeMemory(members) as both, pytest.raises(ConfigError, match="memory_read"):
        both.tools("s", user_id="ana")
