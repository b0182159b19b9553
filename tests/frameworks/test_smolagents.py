"""smolagents' agents with our memory. Their model is scripted."""

from typing import Any

import pytest
from PIL import Image
from smolagents import ActionStep, CodeAgent, LogLevel, Model, TaskStep, ToolCallingAgent, tool
from smolagents.models import ChatMessage, ChatMessageToolCall, ChatMessageToolCallFunction
from smolagents.monitoring import TokenUsage

from agent_memory import AgentMemory
from agent_memory.core.formats.frameworks import Smolagents
from agent_memory.errors import SessionOfAnotherUser
from agent_memory.integrations.smolagents import AgentMemorySteps

QUESTION = "What is my cat called?"
Call = tuple[str, dict[str, Any]]


class Scripted(Model):
    """A model with scripted replies, texts or calls, that records its requests."""

    def __init__(self, *replies: str | list[Call]) -> None:
        super().__init__()
        self.replies = list(replies)
        self.requests: list[str] = []

    def generate(self, messages: Any, *args: Any, **kwargs: Any) -> ChatMessage:
        texts = [f"{one.role.value}: {part['text']}" for one in messages for part in one.content]
        self.requests.append("\n".join(texts))
        reply = self.replies.pop(0)
        if isinstance(reply, str):
            return ChatMessage("assistant", reply)
        calls = [
            ChatMessageToolCall(ChatMessageToolCallFunction(given, name), f"c{at}", "function")
            for at, (name, given) in enumerate(reply)
        ]
        return ChatMessage("assistant", None, calls)


@tool
def weather(city: str) -> str:
    """Look up the weather.

    Args:
        city: The city.
    """
    if city == "Atlantis":
        raise ValueError("no such city")
    return f"It is sunny in {city}."


def final(answer: Any) -> list[Call]:
    return [("final_answer", {"answer": answer})]


def agent_of(
    memory: AgentMemory, model: Model, session: str = "monday", user: str = "ana", **more: Any
) -> ToolCallingAgent:
    agent = ToolCallingAgent([weather], model, verbosity_level=LogLevel.OFF, **more)
    agent.memory = AgentMemorySteps(memory, session, user_id=user)
    return agent


def chat_of(memory: AgentMemory, session: str = "monday") -> list[Any]:
    return [view for one in memory.history(session) for view in one.message.views()]


def test_a_run_continues_the_session(memory: AgentMemory) -> None:
    """Wrong: another process does not know the earlier steps, or they are sent twice."""
    calls: list[Call] = [("weather", {"city": "Rome"}), ("weather", {"city": "Oslo"})]
    model = Scripted([("weather", {"city": "Atlantis"})], calls, final("Sunny."), final("Both."))
    first = agent_of(memory, model)
    assert first.run("How are Rome and Oslo?") == "Sunny."
    assert [type(one) for one in first.memory.steps] == [TaskStep, *[ActionStep] * 3]
    assert agent_of(memory, model).run("Which of them?") == "Both."
    chat = chat_of(memory)
    roles = ["user", "assistant", "tool", "assistant", "tool", "tool", "assistant"]
    assert [view["role"] for view in chat] == [*roles, "user", "assistant"]
    assert "no such city" in chat[2]["content"]
    assert chat[5]["content"] == "It is sunny in Rome.\nIt is sunny in Oslo."
    assert [chat[6]["content"], chat[8]["content"]] == ["Sunny.", "Both."]
    within, after = model.requests[2:]
    system = within.partition("user: ")[0]
    head, _, task = after.rpartition("user: New task:\n")
    assert task == "Which of them?"
    assert head.startswith(within.partition("tool-response: Error")[0])
    assert "It is sunny in Oslo." in head
    assert head.count("New task:") == 1
    assert system in after


@pytest.mark.parametrize("reset", [True, False])
@pytest.mark.parametrize("role", ["system", "user"])
def test_another_chat_is_recalled(memory: AgentMemory, role: Any, reset: bool) -> None:
    """Wrong: another chat is not recalled, or a continued run is sent its own steps twice."""
    with AgentMemory(store=memory.config.store, recall_timeout=60, memory_role=role) as other:
        agent_of(other, Scripted(final("Noted."))).run("My cat is called Mia.")
        model = Scripted(final("Hello."), final("Mia."))
        agent = agent_of(other, model, "tuesday")
        agent.run("Hello.", reset=reset)
        agent.run(QUESTION, reset=reset)
        assert "My cat is called Mia." in model.requests[-1]
        assert model.requests[-1].endswith(QUESTION)
        assert model.requests[-1].count("New task:\nHello.") == 1
        assert [view["content"] for view in chat_of(other, "tuesday")] == [
            "Hello.", "Hello.", QUESTION, "Mia.",
        ]  # fmt: skip
        stranger = Scripted(final("I don't know."))
        agent_of(other, stranger, "other", "ben").run(QUESTION)
        assert "Mia" not in stranger.requests[0]
        with pytest.raises(SessionOfAnotherUser):
            agent_of(other, stranger, "monday", "ben").run(QUESTION)


def test_a_code_agent_continues_the_session(memory: AgentMemory) -> None:
    """Wrong: code is lost, or its answer is not the assistant's message."""
    code = "Thought: I add.\n<code>\nfinal_answer(2 + 3)\n</code>"
    model = Scripted(code, "Thought: I wait.\n<code>\nprint('ok')\n</code>", "I gave up.")
    for task in ("What is 2 + 3?", "And now?"):
        agent = CodeAgent([], model, verbosity_level=LogLevel.OFF, max_steps=1)
        agent.memory = AgentMemorySteps(memory, "monday", user_id="ana")
        agent.run(task)
    views = chat_of(memory)
    assert [view["role"] for view in views] == [
        *("user", "assistant", "tool", "assistant"), *("user", "assistant", "tool", "assistant")
    ]  # fmt: skip
    assert views[1]["content"] == code
    assert "final_answer(2 + 3)" in views[1]["tool_calls"][0]["function"]["arguments"]
    assert [views[3]["content"], views[7]["content"]] == ["5", "I gave up."]
    assert model.requests[1].index(code) < model.requests[1].index("New task:\nAnd now?")


def test_a_full_result_has_token_counts_and_a_plan_has_the_chat(memory: AgentMemory) -> None:
    """Wrong: a full result has no token counts, a plan lacks the chat, or odd text ends a run."""
    model = Scripted(final("Noted \ud83d."), "My plan.", final("Mia."))
    model_of_tokens = model.generate

    def generate(*args: Any, **kwargs: Any) -> ChatMessage:
        reply = model_of_tokens(*args, **kwargs)
        reply.token_usage = TokenUsage(3, 2)
        return reply

    model.generate = generate  # type: ignore[method-assign]
    agent_of(memory, model).run("My cat is called Mia.")
    agent = agent_of(memory, model, planning_interval=1)
    done = agent.run(QUESTION, return_full_result=True)
    assert (done.output, done.token_usage) == ("Mia.", TokenUsage(6, 4))
    assert "My cat is called Mia." in model.requests[1]
    assert "My plan." in model.requests[2]
    assert [view["role"] for view in chat_of(memory)] == ["user", "assistant"] * 2
    assert memory.get("monday", format="smolagents").to_messages()[1]["answer"] == "Noted \ud83d."


def test_a_chat_stays_within_the_budget() -> None:
    """Wrong: all earlier runs are sent."""
    with AgentMemory(store="memory://", blocks=[], max_tokens=300) as memory:
        model = Scripted(*[final("Yes, and more of it. " * 10)] * 12)
        agent = agent_of(memory, model, instructions="Be brief.")
        for number in range(12):
            agent.run(f"Question {number}: " + "why is it so? " * 10, reset=False)
        earlier = model.requests[-1].partition("user: New task:")[2]
        assert "Question 11" in earlier
        assert len(earlier) < 4 * 400
        assert len(memory.history("monday")) == 24


def test_steps_assigned_by_the_caller_are_stored(memory: AgentMemory) -> None:
    """Wrong: a picture is lost, a blank task is refused, or assigned steps are not stored."""
    agent = agent_of(memory, Scripted(final("Yes?")))
    picture = Image.new("RGB", (2, 2))
    step = TaskStep("Who is it?", [picture])
    agent.memory.steps = []
    agent.memory.steps.append(step)
    assert agent.memory.steps == [step]
    assert step.task_images == [picture]
    agent.run("   ")
    agent.memory.reset()
    agent.memory.steps.append(TaskStep("Which city?"))
    assert [type(one) for one in agent.memory.steps] == [
        *(TaskStep, TaskStep, ActionStep, TaskStep)
    ]  # fmt: skip
    assert len(chat_of(memory)) == 3


def test_a_chat_message_survives_a_format_round_trip() -> None:
    """Wrong: another framework's message does not reach smolagents."""
    function = {"name": "weather", "arguments": '{"city": "Rome"}'}
    calls = [{"id": "c", "type": "function", "function": function}]
    for view in (
        {"role": "user", "content": "hi"},
        {"role": "system", "content": "Be brief."},
        {"role": "assistant", "content": "Hello."},
    ):
        (raw,) = Smolagents.from_chat(view)
        assert Smolagents.to_chat(raw) == [view]
    (raw,) = Smolagents.from_chat({"role": "assistant", "content": "I look.", "tool_calls": calls})
    assert Smolagents.to_chat(raw)[0]["tool_calls"] == calls
    assert Smolagents.from_chat({"role": "tool", "content": "sunny"}) == [{"observations": "sunny"}]
    assert Smolagents.from_chat({"role": "assistant", "content": ""}) == []
