"""Haystack's agents with our hook. Their chat generator is scripted."""

import asyncio
from copy import deepcopy
from typing import Annotated, Any

import pytest
from haystack import component
from haystack.components.agents import Agent
from haystack.components.agents.state import State, replace_values
from haystack.dataclasses import (
    ChatMessage,
    FileContent,
    ImageContent,
    ReasoningContent,
    TextContent,
    ToolCall,
)
from haystack.hooks import hook
from haystack.tools import tool

from agent_memory import AgentMemory
from agent_memory.core.formats.frameworks import Haystack
from agent_memory.errors import ConfigError, InvalidInput, SessionOfAnotherUser
from agent_memory.integrations.haystack import AgentMemoryHook

PNG = ImageContent(base64_image="iVBORw0KGgo=", mime_type="image/png")
CALL = ToolCall("weather", {"city": "Rome"}, "c1", {"signature": "x"})
ASKS = ChatMessage.from_assistant(
    "I look.", reasoning=ReasoningContent("hm", {"signed": b"\x00"}), tool_calls=[CALL]
)


@component
class Scripted:
    """A chat generator with scripted replies that records its requests."""

    def __init__(self, *replies: ChatMessage | str) -> None:
        self.replies = [
            ChatMessage.from_assistant(one) if isinstance(one, str) else deepcopy(one)
            for one in replies
        ]
        self.requests: list[list[ChatMessage]] = []

    @component.output_types(replies=list[ChatMessage])
    def run(self, messages: list[ChatMessage], tools: Any = None) -> dict[str, Any]:
        self.requests.append(list(messages))
        return {"replies": [self.replies.pop(0)]}


@tool
def weather(city: Annotated[str, "The city."]) -> str:
    """Look up the weather."""
    return f"It is sunny in {city}."


def agent_of(memory: AgentMemory, model: Scripted, user: Any = "ana", **more: Any) -> Agent:
    ours = AgentMemoryHook(memory, user_id=user)
    hooks = {"before_llm": [ours], "after_run": [ours], **more}
    return Agent(chat_generator=model, tools=[weather], system_prompt="Be brief.", hooks=hooks)


def ask(agent: Agent, text: str | list[ChatMessage], session: str = "monday", **more: Any) -> Any:
    messages = [ChatMessage.from_user(text)] if isinstance(text, str) else text
    return agent.run(messages=messages, hook_context={"session_id": session, **more})


def test_messages_are_stored_without_changes(memory: AgentMemory) -> None:
    """Wrong: reasoning, a signature, a picture or a result is lost, or the prompt is stored."""
    model = Scripted(ASKS, ChatMessage.from_assistant("Sunny.", meta={"model": "m"}))
    shown = ChatMessage.from_user(content_parts=["How is Rome?", PNG])
    done = ask(agent_of(memory, model), [shown])
    assert done["last_message"].text == "Sunny."
    stored = [one.message.raw for one in memory.history("monday")]
    user, asked, result, _ = memory.get("monday", format="haystack").to_messages()
    assert len(stored) == 4
    assert ChatMessage.from_dict(user).images == [PNG]
    assert ChatMessage.from_dict(asked)._content == ASKS._content
    assert ChatMessage.from_dict(result).tool_call_results[0].origin == CALL
    chat = [view for one in memory.history("monday") for view in one.message.views()]
    assert [view["role"] for view in chat] == ["user", "assistant", "tool", "assistant"]
    assert chat[1]["tool_calls"][0]["function"]["arguments"] == '{"city": "Rome"}'
    first, second = model.requests
    assert [one.text for one in first] == ["Be brief.", "How is Rome?"]
    assert [one._content for one in second[2:3]] == [ASKS._content]


@pytest.mark.parametrize("role", ["system", "user"])
def test_another_chat_is_recalled_and_results_are_resent(memory: AgentMemory, role: Any) -> None:
    """Wrong: another chat is not recalled, or a message or a recall is stored again."""
    memory = AgentMemory(store=memory.config.store, recall_timeout=60, memory_role=role)
    model = Scripted("Noted.", ASKS, "Mia.", "You asked that.", "Twice.")
    agent = agent_of(memory, model)
    ask(agent, "My cat is called Mia.")
    done = ask(agent, "What is my cat called?", "tuesday")
    assert "My cat is called Mia." in str(model.requests[1])
    assert str(model.requests[2]).count("<memory>") == 1
    again = ChatMessage.from_user("What did I ask?")
    ask(agent, [*done["messages"], again], "tuesday")
    ask(agent, [again, ChatMessage.from_user("And before?")], "tuesday")
    texts = [view["content"] for one in memory.history("tuesday") for view in one.message.views()]
    assert texts == [
        "What is my cat called?", "I look.", "It is sunny in Rome.", "Mia.", "What did I ask?",
        "You asked that.", "And before?", "Twice.",
    ]  # fmt: skip
    memory.close()


def test_a_chat_stays_within_the_budget() -> None:
    """Wrong: the whole chat is sent, or the prompt is lost."""
    with AgentMemory(store="memory://", blocks=[], max_tokens=300) as small:
        model = Scripted(*["Yes, and more of it. " * 10] * 12)
        agent = agent_of(small, model)
        for number in range(12):
            ask(agent, f"Question {number}: " + "why is it so? " * 10)
        last = model.requests[-1]
        assert last[0].text == "Be brief."
        assert "Question 11" in str(last[-1].text)
        assert sum(len(str(one.text)) for one in last) < 4 * 300
        assert len(small.history("monday")) == 24


def test_users_are_isolated(memory: AgentMemory) -> None:
    """Wrong: a user sees another's chat, or a run without a session is stored."""
    model = Scripted("Noted.", "I don't know.")
    agent = agent_of(memory, model, lambda context: context["user_id"])
    ask(agent, "My cat is called Mia.", user_id="ana")
    ask(agent, "What is my cat called?", "other", user_id="ben")
    assert "Mia" not in str(model.requests[-1])
    with pytest.raises(SessionOfAnotherUser):
        ask(agent, "What is my cat called?", user_id="ben")
    with pytest.raises(InvalidInput, match="session_id"):
        agent.run(messages=[ChatMessage.from_user("hi")], hook_context={"user_id": "ana"})
    with pytest.raises(ConfigError, match="database"):
        agent.to_dict()
    assert len(memory.history("monday")) == 2


def test_messages_changed_by_other_hooks_are_not_stored_again(memory: AgentMemory) -> None:
    """Wrong: a shortened message is stored again, or a continued run has no context."""

    @hook
    def shorten(state: State) -> None:
        for one in state.data["messages"]:
            if one.tool_call_results:
                one.tool_call_results[0].origin.arguments.clear()

    @hook
    def go_on(state: State) -> None:
        if state.data["step_count"] == 2:
            state.set("messages", [ChatMessage.from_user("Are you sure?")])
            state.set("continue_run", True)

    model = Scripted(ASKS, "Sunny.", "Quite.")
    agent = agent_of(memory, model, after_tool=[shorten], on_exit=[go_on])
    done = asyncio.run(
        agent.run_async(
            messages=[ChatMessage.from_user("How is Rome?")], hook_context={"session_id": "monday"}
        )
    )
    assert done["last_message"].text == "Quite."
    texts = [view["content"] for one in memory.history("monday") for view in one.message.views()]
    assert texts[3:] == ["Sunny.", "Are you sure?", "Quite."]
    assert [one.text for one in model.requests[-1]][-2:] == ["Sunny.", "Are you sure?"]
    state = State({}, {"messages": done["messages"], "hook_context": {"session_id": "monday"}})
    state.set("messages", [], handler_override=replace_values)
    AgentMemoryHook(memory, user_id="ana").run(state)
    assert state.data["messages"] == []


def test_a_chat_message_survives_a_format_round_trip() -> None:
    """Wrong: a call, a picture or a file of another framework's message does not reach Haystack."""
    url = "data:image/png;base64,iVBORw0KGgo="
    function = {"name": "weather", "arguments": '{"city": "Rome"}'}
    text = {"type": "text", "text": "look"}
    file = {"file_data": "data:application/pdf;base64,JVBERi0=", "filename": "a.pdf"}
    for view in (
        {"role": "user", "content": "hi", "name": "Ana"},
        {"role": "user", "content": [text, {"type": "image_url", "image_url": {"url": url}}]},
        {"role": "user", "content": [text, {"type": "file", "file": file}]},
        {"role": "system", "content": "Be brief."},
        {"role": "assistant", "content": None,
         "tool_calls": [{"id": "c", "type": "function", "function": function}]},
        {"role": "tool", "content": "sunny", "tool_call_id": "c", "name": "weather"},
    ):  # fmt: skip
        (raw,) = Haystack.from_chat(view)
        assert Haystack.to_chat(ChatMessage.from_dict(raw).to_dict()) == [view]
    link = {"type": "image_url", "image_url": {"url": "https://x.test/a.png"}}
    (raw,) = Haystack.from_chat({"role": "user", "content": [link]})
    assert ChatMessage.from_dict(raw).text == "[image https://x.test/a.png]"
    assert Haystack.from_chat({"role": "assistant", "content": ""}) == []
    assert Haystack.to_chat({"role": "chatbot", "content": []}) == []
    pdf = FileContent(base64_data="JVBERi0=", mime_type="application/pdf", validation=False)
    many = ChatMessage.from_tool([TextContent("see"), PNG, pdf], CALL)
    (view,) = Haystack.to_chat(many.to_dict())
    assert [part["type"] for part in view["content"]] == ["text", "image_url", "file"]
