"""pydantic-ai's conversations over a memory."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from agent_memory import AgentMemory, VectorMemory
from agent_memory.core.formats.frameworks import PydanticAI

pytest.importorskip("pydantic_ai", reason='Not here: pip install "agent-memory-log[pydantic-ai]"')

from pydantic_ai import Agent
from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import ConversationConflict
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    TextPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel

from agent_memory.integrations.pydantic_ai import AgentMemoryConversationStore, AgentMemoryHistory
from tests.histories import call, result
from tests.kit import texts


@pytest.fixture
def memory(url: str) -> Iterator[AgentMemory]:
    with AgentMemory(store=url, blocks=[VectorMemory()], recall_timeout=60) as opened:
        yield opened


async def revision(store: AgentMemoryConversationStore) -> str:
    record = await store.read_record("c")
    return record.revision


def test_conversations_are_stored_branched_and_forked(memory: AgentMemory) -> None:
    """Wrong: a stale save overwrites another, a branch is lost, or a fork ends with its origin."""

    async def talk() -> None:
        store = AgentMemoryConversationStore(memory)
        agent = Agent(FunctionModel(lambda messages, info: ModelResponse([TextPart("Yes.")])))
        result = await agent.run("One?", conversation=Conversation(conversation_id="c"))
        await store.save(result, scope="ana")
        loaded = await store.load("c", scope="ana")
        stale = await store.load("c")
        result = await agent.run("Two?", conversation=loaded)
        await store.save(result)
        with pytest.raises(ConversationConflict):
            await store.save(await agent.run("Late?", conversation=stale))
        assert texts(memory, "c") == ["One?", "Yes.", "Two?", "Yes."]
        assert await store.load("c", scope="ben") is None
        assert "Yes" in str(memory.search("Yes", user_id="ana"))
        forked = await store.fork("c", at=2, new_conversation_id="f")
        assert texts(memory, "f") == ["One?", "Yes."]
        await store.branch("c", at=2, expected_revision=await revision(store))
        assert texts(memory, "c") == ["One?", "Yes."]
        record = await store.read_record("c")
        assert len(record.branches) == 1
        await store.branch("c", from_entry=record.branches[0], expected_revision=record.revision)
        assert texts(memory, "c") == ["One?", "Yes.", "Two?", "Yes."]
        assert [one.conversation_id for one in await store.read_records(scope="ana")] == ["c", "f"]
        now = await store.read_record("c")
        await store.delete_record("c", expected_revision=now.revision)
        assert await store.load("c") is None
        again = await store.load("f")
        assert len(again.messages) == 2
        assert forked is not None

    asyncio.run(talk())


def test_a_run_receives_the_context(memory: AgentMemory) -> None:
    """Wrong: another chat is not recalled, a message is stored twice, or history is replaced."""
    sent: list[Any] = []

    def answer(messages: list[Any], info: AgentInfo) -> ModelResponse:
        sent.append(messages)
        return ModelResponse([TextPart("Noted.")])

    def agent(session: str) -> Any:
        history = AgentMemoryHistory(memory, session, user_id="ana")
        return Agent(FunctionModel(answer), capabilities=[history])

    async def talk() -> None:
        monday = agent("mon")
        first = await monday.run("My cat is called Mia.")
        await monday.run("And she is old.", message_history=first.all_messages())
        result = await agent("tue").run("What is my cat called?")
        assert "Mia" in str(sent[-1])
        assert len(result.all_messages()) == 2

    asyncio.run(talk())
    assert texts(memory, "mon") == ["My cat is called Mia.", "Noted.", "And she is old.", "Noted."]
    assert texts(memory, "tue") == ["What is my cat called?", "Noted."]


def test_the_message_history_of_a_run_is_not_stored_again(memory: AgentMemory) -> None:
    """Wrong: a frontend's chat, which has new times in each request, is stored in each run, or a
    question that is asked again follows its old answer."""
    sent: list[list[ModelMessage]] = []

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        sent.append(messages)
        return ModelResponse([TextPart(f"Answer {len(sent)}.")])

    history = AgentMemoryHistory(memory, "s", user_id="ana")
    agent: Any = Agent(FunctionModel(answer), capabilities=[history])

    def asked(*chat: str) -> list[ModelMessage]:
        return [
            ModelResponse([TextPart(text)]) if place % 2 else ModelRequest([UserPromptPart(text)])
            for place, text in enumerate(chat)
        ]

    async def talk() -> None:
        await agent.run(message_history=asked("One?", "One.", "Two?"))
        result = await agent.run(message_history=asked("One?", "One.", "Two?", "Answer 1.", "3?"))
        await agent.run("4?", message_history=result.all_messages())
        assert texts(memory, "s") == ["One?", "One.", "Two?", "Answer 1.", "3?", "Answer 2.", "4?",
                                      "Answer 3."]  # fmt: skip
        await agent.run(message_history=result.all_messages()[:-1])

    asyncio.run(talk())
    assert texts(memory, "s") == ["One?", "One.", "Two?", "Answer 1.", "3?", "Answer 4."]
    assert str(sent[-1][-1].parts[0].content) == "3?"  # type: ignore[union-attr]


def test_a_chat_message_survives_a_format_round_trip() -> None:
    """Wrong: the chat for other formats lacks calls and their results."""
    for view in (
        {"role": "user", "content": "hi"},
        {"role": "system", "content": "be kind"},
        call(["c"], "weather", '{"city": "Rome"}'),
        result("c", "sunny"),
    ):
        raw = PydanticAI.from_chat(view)
        (again,) = ModelMessagesTypeAdapter.dump_python(
            ModelMessagesTypeAdapter.validate_python(raw), mode="json"
        )
        assert PydanticAI.to_chat(again) == [view]
    assert PydanticAI.to_chat({"kind": "request"}) == []
    assert ModelRequest([UserPromptPart("x")]).parts
