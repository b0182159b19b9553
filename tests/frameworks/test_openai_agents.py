"""Sessions of OpenAI's Agents SDK over a memory. `make suites` runs the SDK's own tests."""

import asyncio
from typing import Any

import pytest
from agents import Agent, Model, ModelResponse, RunConfig, Runner, SessionSettings, Usage
from agents.memory import Session
from openai.types.responses import ResponseOutputMessage, ResponseOutputText

from agent_memory import AgentMemory
from agent_memory.integrations.openai_agents import AgentMemorySession

COMPACTION = {"type": "compaction", "id": "c_1", "encrypted_content": "sealed"}


def test_items_are_returned_unchanged(memory: AgentMemory) -> None:
    """Wrong: an item is changed, skipped, deduplicated or refused."""
    items: list[Any] = [
        {"role": "user", "content": "hi"},
        {"type": "reasoning", "id": "r_1", "summary": [], "encrypted_content": "x"},
        {"type": "function_call", "call_id": "f", "name": "n", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "f", "output": "done"},
        COMPACTION,
        {"__enc__": 1, "payload": "..."},
        {"type": "odd", "data": b"\x00", "n": float("inf"), "t": (1, 2), "s": "\ud800"},
        {"role": "user", "content": "hi"},
        {},
    ]

    async def talk() -> None:
        session = AgentMemorySession(memory, "s", user_id="ana")
        assert isinstance(session, Session)
        await session.add_items(items)
        await session.add_items([])
        assert await session.get_items() == items
        assert await session.get_items(2) == items[-2:]
        assert await session.get_items(0) == []
        few = AgentMemorySession(memory, "s", session_settings=SessionSettings(limit=3))
        assert await few.get_items() == items[-3:]
        assert await session.pop_item() == {}
        assert await session.pop_item() == items[-2]
        assert await session.get_items() == items[:-2]
        memory.update("s", {"role": "assistant", "content": "from elsewhere"})
        assert "from elsewhere" in str((await session.get_items())[-1])
        calls = [{"id": one, "type": "function", "function": {"name": "f", "arguments": "{}"}}
                 for one in ("c1", "c2")]  # fmt: skip
        memory.update("s", {"role": "assistant", "content": "one", "tool_calls": calls})
        before = await session.get_items()
        assert await session.pop_item() == before[-1]
        assert await session.get_items() == before[:-1]
        await session.clear_session()
        assert await session.get_items() == []
        assert await session.pop_item() is None

    asyncio.run(talk())


def test_a_run_receives_recalls_of_another_session(memory: AgentMemory) -> None:
    """Wrong: another chat is not recalled, the question is sent twice, or the recall is stored."""

    async def talk() -> None:
        monday = AgentMemorySession(memory, "monday", user_id="ana")
        await monday.add_items([{"role": "user", "content": "My cat is called Mia."}])
        tuesday = AgentMemorySession(memory, "tuesday", user_id="ana")
        await tuesday.add_items([{"role": "user", "content": "Hello."}, COMPACTION])  # type: ignore[list-item]
        asked: Any = {"role": "user", "content": "What is my cat called?"}
        sent = await tuesday.recalled(await tuesday.get_items(), [asked])
        assert sent[-1] == asked
        assert sent.count(asked) == 1
        assert "Mia" in str(sent)
        assert COMPACTION in sent
        assert len(await tuesday.get_items()) == 2
        stranger = AgentMemorySession(memory, "other", user_id="ben")
        assert "Mia" not in str(await stranger.recalled([], [asked]))

    asyncio.run(talk())


@pytest.mark.parametrize("role", ["system", "user"])
def test_a_run_stores_only_its_own_items(role: Any) -> None:
    """Wrong: the SDK stores the recalls or shortened messages, or sends a question twice."""

    class Echo(Model):
        async def get_response(self, *args: Any, **kwargs: Any) -> ModelResponse:
            self.sent = str(kwargs["input"])
            text = ResponseOutputText(text="Yes.", type="output_text", annotations=[])
            answer = ResponseOutputMessage(
                id="m", type="message", role="assistant", status="completed", content=[text]
            )
            return ModelResponse(output=[answer], usage=Usage(), response_id=None)

        async def stream_response(self, *args: Any, **kwargs: Any) -> Any:
            yield None

    async def talk(memory: AgentMemory) -> None:
        model = Echo()
        memory.update("monday", "My cat is called Mia.", user_id="ana")
        session = AgentMemorySession(memory, "tuesday", user_id="ana")
        config = RunConfig(session_input_callback=session.recalled, tracing_disabled=True)
        questions = ["Is my cat called Mia?", "A long one: " + "long " * 2_000, "Is Mia my cat?"]
        for question in questions:
            await Runner.run(Agent("a", model=model), question, session=session, run_config=config)
            assert model.sent.count(question[:21]) == 1
        assert "<memory>" in model.sent
        asked = [item.get("content") for item in await session.get_items()][::2]
        assert asked == questions

    with AgentMemory(store="memory://", max_tokens=500, memory_role=role) as memory:
        asyncio.run(talk(memory))


def test_a_write_completes_although_its_caller_is_cancelled(memory: AgentMemory) -> None:
    """Wrong: half of a turn is stored, or the caller does not learn that it was cancelled."""

    async def talk() -> int:
        session = AgentMemorySession(memory, "s")
        items: Any = [{"role": "user", "content": f"{n}"} for n in range(50)]
        task = asyncio.create_task(session.add_items(items))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return len(await session.get_items())

    assert asyncio.run(talk()) == 50
