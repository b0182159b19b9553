"""LlamaIndex's memory, chat store and block over a memory."""

import asyncio
from typing import Any

import pytest
from llama_index.core.base.llms.types import ChatMessage, ImageBlock, TextBlock
from llama_index.core.memory import Memory

from agent_memory import AgentMemory
from agent_memory.core.formats.frameworks import LlamaIndex
from agent_memory.errors import ConfigError
from agent_memory.integrations.llama_index import (
    AgentMemoryBlock,
    AgentMemoryChatStore,
    AgentMemoryMemory,
)


def user_messages(*texts: str) -> list[ChatMessage]:
    return [ChatMessage(text, role="user") for text in texts]


def test_a_chat_store_stores_a_list_for_each_key(memory: AgentMemory) -> None:
    """Wrong: a message is changed, an index is off by one, or another key's list is lost."""
    store = AgentMemoryChatStore(memory, prefix="li/")
    image = ChatMessage(blocks=[TextBlock(text="look"), ImageBlock(image=b"\x89PNG")])
    odd = ChatMessage("odd", additional_kwargs={"n": float("inf"), "b": b"\x00"})
    messages = [*user_messages("one", "two"), image, odd]
    store.set_messages("a", messages)
    store.add_message("b", user_messages("other")[0])
    assert store.get_messages("a") == messages
    assert store.get_keys() == ["a", "b"]
    store.add_message("b", user_messages("first")[0], idx=0)
    assert store.delete_message("b", 0) == user_messages("first")[0]
    assert store.delete_message("a", 1) == messages[1]
    assert store.delete_message("a", 7) is None
    assert store.delete_message("a", -1) is None
    assert store.delete_last_message("a") == odd
    assert store.get_messages("a") == [messages[0], image]
    assert asyncio.run(store.aget_messages("b")) == user_messages("other")
    assert store.delete_messages("a") == [messages[0], image]
    assert store.delete_messages("a") is None
    assert store.delete_last_message("none") is None
    assert store.get_keys() == ["b"]


def test_a_memory_returns_the_context(memory: AgentMemory) -> None:
    """Wrong: another chat is not recalled, the question is sent twice, or a copy has no memory."""
    monday = AgentMemoryMemory.from_defaults(memory=memory, session_id="monday", user_id="ana")
    monday.put_messages(user_messages("My cat is called Mia."))
    tuesday = AgentMemoryMemory.from_defaults(memory=memory, session_id="tuesday", user_id="ana")
    tuesday.set(user_messages("Hello.", "Well?"))
    asyncio.run(tuesday.aput(ChatMessage("Yes?", role="assistant")))
    found = tuesday.get("What is my cat called?")
    assert "Mia" in str([one.content for one in found])
    assert found[-2].content == "Yes?"
    assert [one.content for one in tuesday.get_all()] == ["Hello.", "Well?", "Yes?"]
    question = user_messages("What is my cat called?")
    monday.put_messages(question)  # like an agent's workflow before its first call
    assert monday.get("What is my cat called?")[-1:] == question
    copy = AgentMemoryMemory.from_dict(tuesday.to_dict())
    with pytest.raises(ConfigError, match="bound"):
        copy.get_all()
    assert len(copy.bound(memory).get_all()) == 3
    tuesday.reset()
    assert tuesday.get_all() == []


def test_a_block_recalls_in_llama_indexs_own_memory(memory: AgentMemory) -> None:
    """Wrong: messages that left LlamaIndex's window are lost, or shown to another user."""

    async def talk(user: str) -> str:
        block = AgentMemoryBlock(memory, user_id=user)
        own = Memory.from_defaults(
            session_id=f"s-{user}", token_limit=60, chat_history_token_ratio=0.5,
            token_flush_size=10, memory_blocks=[block],
        )  # fmt: skip
        if user == "ana":
            await own.aput_messages(user_messages("My cat is called Mia, and she is ten."))
            await own.aput_messages([ChatMessage("How lovely she is! " * 12, role="assistant")])
        await own.aput_messages(user_messages("What is my cat called?"))
        return str([one.content for one in await own.aget()])

    assert "Mia" in asyncio.run(talk("ana"))
    assert "Mia" not in asyncio.run(talk("ben"))


def test_a_chat_message_survives_a_format_round_trip() -> None:
    """Wrong: the chat for other formats lacks calls and their results."""
    function = {"name": "weather", "arguments": '{"city": "Rome"}'}
    calls: Any = [{"id": "c", "type": "function", "function": function}]
    for view in (
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "content": "sunny", "tool_call_id": "c"},
    ):
        (raw,) = LlamaIndex.from_chat(view)
        assert LlamaIndex.to_chat(ChatMessage.model_validate(raw).model_dump(mode="json")) == [view]
    assert LlamaIndex.to_chat({"role": "user"}) == []
