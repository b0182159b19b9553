"""Microsoft's Agent Framework over a memory. `make suites` runs its own tests."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from agent_framework import AgentSession, Content, Message, SessionContext

from agent_memory import AgentMemory
from agent_memory.core.formats.frameworks import AgentFramework
from agent_memory.integrations.agent_framework import (
    _QUESTION,
    AgentMemoryContextProvider,
    AgentMemoryHistoryProvider,
)


def test_a_history_is_returned_unchanged(memory: AgentMemory) -> None:
    """Wrong: a message is changed, or assigned to another session or user."""
    call = Content.from_function_call("c", "weather", arguments={"city": "Rome"})
    messages = [
        Message("user", ["How is Rome?"], message_id="m-1"),
        Message("assistant", [Content.from_text("Let me look."), call], author_name="bot"),
        Message("tool", [Content.from_function_result("c", result={"sun": float("inf")})]),
        Message("assistant", ["Sunny."], additional_properties={"_excluded": True}),
    ]

    async def talk() -> None:
        kept = AgentMemoryHistoryProvider(memory, user_id="ana")
        await kept.save_messages("s", messages)
        await kept.save_messages("s", [])
        found = await kept.get_messages("s")
        assert [one.to_dict() for one in found] == [one.to_dict() for one in messages]
        few = AgentMemoryHistoryProvider(memory, user_id="ana", skip_excluded=True)
        assert len(await few.get_messages("s")) == 3
        assert await kept.get_messages("t") == []
        await kept.save_messages(None, messages[:1])
        assert len(await kept.get_messages(None)) == 1

    asyncio.run(talk())


def test_a_run_receives_the_memory_of_its_user(memory: AgentMemory) -> None:
    """Wrong: a run gets another user's memory, fails while the memory is down, or is not stored."""

    async def told(user: str, text: str, answer: str = "") -> str:
        provider = AgentMemoryContextProvider(memory, user_id=lambda session: user, stores=True)
        said = [Message("user", [text])]
        context = SessionContext(session_id=f"s-{text[:4]}", input_messages=said)
        given: Any = {"agent": None, "session": AgentSession(), "context": context, "state": {}}
        await provider.before_run(**given)
        if answer:
            context._response = SimpleNamespace(messages=[Message("assistant", [answer])])  # type: ignore[assignment]
        await provider.after_run(**given)
        return str([one.text for one in context.get_messages()])

    async def talk() -> None:
        assert "Mia" not in await told("ana", "My cat is called Mia.", "Lovely!")
        assert "Mia" in await told("ana", "What is my cat called?")
        assert "Mia" not in await told("ben", "Whose cat is called what?")
        memory.close()
        assert await told("ana", "What is my cat called?") == "[]"

    asyncio.run(talk())


@pytest.mark.parametrize(("role", "length"), [("system", 1), ("system", 2_000), ("user", 1)])
def test_a_run_within_the_budget_gets_recalls_for_its_question(role: Any, length: int) -> None:
    """Wrong: the recalls are for the previous question, or the question is sent twice."""
    memory = AgentMemory(store="memory://", max_tokens=500, memory_role=role)
    memory.update("earlier", "My cat is called Mia.", user_id="ana")
    provider = AgentMemoryHistoryProvider(memory, user_id="ana", within_budget=True)
    question = "What is my cat called?" + " Mia" * (length - 1)
    context = SessionContext(session_id="s", input_messages=[Message("user", [question])])
    memory.update("s", ["Hi.", {"role": "assistant", "content": "Hi."}])
    given: Any = {"agent": None, "session": AgentSession(), "context": context, "state": {}}
    asyncio.run(provider.before_run(**given))
    sent = [one.text for one in context.get_messages(include_input=True)]
    assert "Mia" in str(sent)
    assert sent[-1] == question
    assert str(sent).count("What is my cat") == 1
    memory.close()


def test_a_call_that_a_person_approves_is_in_the_context(memory: AgentMemory) -> None:
    """Wrong: the framework sends the call's result without the call."""
    provider = AgentMemoryHistoryProvider(memory, user_id="ana", within_budget=True)
    call = Content.from_function_call("c", "delete", arguments={"path": "x"})
    asked = Content.from_function_approval_request("c", call)
    chat = [Message("user", ["Delete x."]), Message("assistant", [call, asked])]
    asyncio.run(provider.save_messages("s", chat))
    memory.update("s", ["Wait!", {"role": "assistant", "content": "Yes?"}])
    sent = asyncio.run(provider.get_messages("s", state={_QUESTION: "What is x?"}))
    assert [one.text for one in sent] == ["Delete x.", "Wait!", "Yes?", ""]
    assert sent[-1].to_dict() == chat[-1].to_dict()
    answer = Message("user", [asked.to_function_approval_response(True)])
    asyncio.run(provider.save_messages("s", [answer]))
    sent = asyncio.run(provider.get_messages("s"))
    assert chat[-1].to_dict() not in [one.to_dict() for one in sent]


def test_a_chat_message_survives_a_format_round_trip() -> None:
    """Wrong: the chat for other formats lacks calls and their results."""
    function = {"name": "weather", "arguments": '{"city": "Rome"}'}
    calls: Any = [{"id": "c", "type": "function", "function": function}]
    for view in (
        {"role": "user", "content": "hi", "name": "ana"},
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "content": "sunny", "tool_call_id": "c"},
    ):
        (raw,) = AgentFramework.from_chat(view)
        assert AgentFramework.to_chat(Message.from_dict(raw).to_dict()) == [view]
    assert AgentFramework.to_chat({"role": "user"}) == []
