"""Google ADK's services over a memory. `make suites` runs ADK's own tests."""

import asyncio
from typing import Any

import pytest
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.sessions.base_session_service import GetSessionConfig
from google.genai import types

from agent_memory import AgentMemory
from agent_memory.core.formats.gemini import from_chat
from agent_memory.core.formats.gemini import to_chat_of_event as to_chat
from agent_memory.integrations.google_adk import AgentMemoryMemoryService, AgentMemorySessionService


def event(text: str, at: float, author: str = "user", **state: Any) -> Event:
    content = types.Content(role=author, parts=[types.Part(text=text)])
    actions = EventActions(state_delta=state)
    return Event(author=author, content=content, timestamp=at, actions=actions)


def test_sessions_and_states_are_stored(memory: AgentMemory) -> None:
    """Wrong: an event or a state is lost, stored twice, or another session's."""

    async def talk() -> None:
        kept = AgentMemorySessionService(memory)
        one = await kept.create_session(
            app_name="a/b", user_id="u", session_id=" s ", state={"n": 1, "user:lang": "de"}
        )
        assert one.id == "s"
        with pytest.raises(AlreadyExistsError):
            await kept.create_session(app_name="a/b", user_id="u", session_id="s")
        first = event("hi", 10.5, **{"n": 2, "app:v": 3, "temp:x": 4})
        await kept.append_event(one, first)
        again = await kept.get_session(app_name="a/b", user_id="u", session_id="s")
        assert again is not None
        await kept.append_event(again, first)
        await kept.append_event(again, event("hello", 11.5, author="model"))
        found = await kept.get_session(app_name="a/b", user_id="u", session_id="s")
        assert [one.content.parts[0].text for one in found.events] == ["hi", "hello"]  # type: ignore[union-attr, index]
        assert found.state == {"n": 2, "app:v": 3, "user:lang": "de"}
        assert found.last_update_time == 11.5
        late = GetSessionConfig(num_recent_events=1)
        short = await kept.get_session(app_name="a/b", user_id="u", session_id="s", config=late)
        assert len(short.events) == 1
        assert await kept.get_session(app_name="a", user_id="b/u", session_id="s") is None
        await kept.create_session(app_name="a/b", user_id="v", session_id="t")
        every = await kept.list_sessions(app_name="a/b")
        assert [(one.user_id, one.id) for one in every.sessions] == [("u", "s"), ("v", "t")]
        assert await kept.get_user_state(app_name="a/b", user_id="u") == {"lang": "de"}
        await kept.delete_session(app_name="a/b", user_id="u", session_id="s")
        assert await kept.get_session(app_name="a/b", user_id="u", session_id="s") is None

    asyncio.run(talk())


def test_messages_of_one_session_are_found_in_another(memory: AgentMemory) -> None:
    """Wrong: a message is found by another user, twice or after it was deleted, or a message
    to which an agent is answering is found as a memory."""

    async def talk() -> None:
        sessions, kept = AgentMemorySessionService(memory), AgentMemoryMemoryService(memory)
        one = await sessions.create_session(app_name="app", user_id="ana", session_id="s")
        said = event("My cat is called Mia.", 10.0)
        await sessions.append_event(one, said)
        await kept.add_session_to_memory(one)
        await kept.add_session_to_memory(one)
        now = await sessions.create_session(app_name="app", user_id="ana", session_id="now")
        await sessions.append_event(now, event("Mia is the name of my cat.", 11.0))

        async def found(user: str, query: str = "What is my cat called?") -> list[Any]:
            asked = {"app_name": "app", "user_id": user, "query": query}
            return [one.id for one in (await kept.search_memory(**asked)).memories]

        assert await found("ana", "Mia is the name of my cat.") == [said.id]
        await sessions.delete_session(app_name="app", user_id="ana", session_id="now")
        assert await found("ana") == [said.id]
        assert await found("ben") == []
        await kept.delete_memory(app_name="app", user_id="ana", memory_id=said.id)
        await kept.add_session_to_memory(one)
        assert await found("ana") == []

    asyncio.run(talk())


def test_a_chat_message_survives_a_format_round_trip() -> None:
    """Wrong: the chat for other formats lacks calls and their results."""
    call = {"id": "c", "name": "weather", "args": {"city": "Rome"}}
    thought = {"text": "Hm.", "thought": True}
    content = {"role": "model", "parts": [thought, {"function_call": call}]}
    (view,) = to_chat({"author": "bot", "content": content})
    assert view["tool_calls"][0]["function"]["arguments"] == '{"city": "Rome"}'
    answer = {"id": "c", "name": "weather", "response": {"sun": True}}
    (told,) = to_chat({"content": {"role": "user", "parts": [{"function_response": answer}]}})
    assert told.pop("content") == '{"sun": true}'
    assert told == {"role": "tool", "tool_call_id": "c", "name": "weather"}
    hello = {"role": "assistant", "content": "hello"}
    (said,) = from_chat(hello)
    assert to_chat({"author": "bot", "content": said}) == [hello]
    assert to_chat({"author": "user"}) == []
