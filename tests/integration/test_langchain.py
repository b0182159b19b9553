"""LangChain's agents and chat histories over a memory."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import SummarizationMiddleware, wrap_model_call
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
    convert_to_messages,
)
from langgraph.checkpoint.memory import InMemorySaver

from agent_memory import AgentMemory, InvalidInput, VectorMemory
from agent_memory.core.formats.langchain import from_chat, to_chat
from agent_memory.integrations.langchain import (
    AgentMemoryChatMessageHistory,
    AgentMemoryMiddleware,
    from_langchain,
)
from tests.kit import texts


class Model(GenericFakeChatModel):
    """Returns scripted answers, and records the messages it was sent."""

    sent: list[list[BaseMessage]] = []

    def _generate(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
        self.sent.append(list(messages))
        return super()._generate(messages, *args, **kwargs)

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self


def model(*answers: AIMessage | str) -> Model:
    said = [AIMessage(one) if isinstance(one, str) else one for one in answers]
    return Model(messages=iter(said), sent=[])


@pytest.fixture
def memory(url: str) -> Iterator[AgentMemory]:
    with AgentMemory(store=url, blocks=[VectorMemory()], recall_timeout=60) as opened:
        yield opened


def thread(name: str) -> Any:
    return {"configurable": {"thread_id": name}}


def agent_of(fake: Model, middleware: AgentMemoryMiddleware, *tools: Any, **more: Any) -> Any:
    saver = InMemorySaver()
    return create_agent(fake, [*tools], middleware=[middleware], checkpointer=saver, **more)


def test_an_agent_remembers_across_threads(memory: AgentMemory) -> None:
    """Wrong: a thread does not recall the user's other one, or another user's does."""
    fake = model("Nice!", "You live in Lisbon.", "I do not know.")
    owners = {"t-1": "ana", "t-2": "ana", "t-3": "ben"}

    def whose(runtime: Any) -> str:
        return owners[runtime.execution_info.thread_id]

    middleware = AgentMemoryMiddleware(memory, user_id=whose)
    agent = agent_of(fake, middleware, system_prompt="Be kind.")
    asked = {"messages": [HumanMessage("I live in Lisbon with my cat Mia.", id="m-1")]}
    agent.invoke(asked, thread("t-1"))
    agent.invoke({"messages": "Where do I live?"}, thread("t-2"))
    agent.invoke({"messages": "Where do I live?"}, thread("t-3"))
    assert "Lisbon" not in str(fake.sent[0][0].content)
    assert "Lisbon" in str([one.content for one in fake.sent[1]])
    assert "Lisbon" not in str([one.content for one in fake.sent[2]])
    assert texts(memory, "t-1") == ["I live in Lisbon with my cat Mia.", "Nice!"]
    assert isinstance(fake.sent[1][0], SystemMessage)
    assert memory.head("t-1").user_id == "ana"


def test_recalls_of_a_later_turn_add_no_second_system_message(memory: AgentMemory) -> None:
    """Wrong: Claude's model refuses a second system message, or Gemini's drops the recalls."""
    memory.remember("Ana lives in Lisbon.", user_id="ana")
    fake = model("Hi.", "In Lisbon.")
    middleware = AgentMemoryMiddleware(memory, user_id="ana")
    agent = agent_of(fake, middleware, system_prompt="Be kind.")
    agent.invoke({"messages": "Hello."}, thread("t"))
    agent.invoke({"messages": "Which city do I live in?"}, thread("t"))
    assert [one.type for one in fake.sent[1]] == ["system", "human", "ai", "human", "human"]
    assert "Lisbon" in str(fake.sent[1][3].content)
    assert fake.sent[1][4].content == "Which city do I live in?"


def test_model_calls_fit_the_budget_for_any_state_of_the_graph(url: str) -> None:
    """Wrong: the model is sent more than the budget, such as the graph's whole state."""
    with AgentMemory(store=url, blocks=[], max_tokens=400) as memory:
        answers = [f"Answer {n}, which is somewhat long, as answers are." for n in range(30)]
        fake = model(*answers)
        agent = agent_of(fake, AgentMemoryMiddleware(memory), system_prompt="Be brief. " * 20)
        for number in range(30):
            agent.invoke({"messages": f"Question {number} about something."}, thread("t"))
        counter = memory.components.resources.counter
        last = fake.sent[-1]
        told = [view for one in from_langchain(last) for view in to_chat(one["raw"])]
        assert counter.context(told) <= 400
        assert last[-1].content == "Question 29 about something."
        assert len(memory.history("t")) == 60


def test_a_repeated_run_stores_no_duplicate(memory: AgentMemory) -> None:
    """Wrong: a repeated run stores its question again."""

    class Down(Model):
        def _generate(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
            if not self.sent:
                self.sent.append([])
                raise ConnectionError("down")
            return super()._generate(messages, *args, **kwargs)

    fake = Down(messages=iter([AIMessage("Hello.")]), sent=[])
    agent = agent_of(fake, AgentMemoryMiddleware(memory))
    with pytest.raises(ConnectionError):
        agent.invoke({"messages": "Hi!"}, thread("t"))
    agent.invoke(None, thread("t"))
    assert texts(memory, "t") == ["Hi!", "Hello."]


def test_a_message_that_the_graph_changes_is_changed_in_the_log(memory: AgentMemory) -> None:
    """Wrong: each later run of the thread raises Conflict, or the model gets the old text."""
    fake = model("One.", "Two.", "Three.", "Four.")
    agent = agent_of(fake, AgentMemoryMiddleware(memory, user_id="ana"))
    agent.invoke({"messages": "Hi."}, thread("t"))
    agent.invoke({"messages": "And?"}, thread("t"))
    answer = agent.get_state(thread("t")).values["messages"][1]
    agent.update_state(thread("t"), {"messages": [AIMessage("[removed]", id=answer.id)]})
    for question in ("Then?", "Last?"):
        agent.invoke({"messages": question}, thread("t"))
    said = ["Hi.", "[removed]", "And?", "Two.", "Then?", "Three.", "Last?", "Four."]
    assert texts(memory, "t") == said
    assert [one.content for one in fake.sent[-1]] == said[:-1]


def test_a_branch_that_the_graph_leaves_is_removed_from_the_log(memory: AgentMemory) -> None:
    """Wrong: a regenerated answer follows the old answer, or a branch is lost on the way back."""

    def before(question: str) -> Any:
        states = agent.get_state_history(thread("t"))
        return next(
            state.config
            for state in states
            if state.next == ("model",) and state.values["messages"][-1].content == question
        )

    fake = model("One.", "Two.", "Another two.", "Three.", "Four.", "Five.")
    agent = agent_of(fake, AgentMemoryMiddleware(memory, user_id="ana"))
    for question in ("Hi.", "And?"):
        agent.invoke({"messages": question}, thread("t"))
    old = agent.get_state(thread("t")).config
    agent.invoke(None, before("And?"))
    assert [one.content for one in fake.sent[-1]] == ["Hi.", "One.", "And?"]
    agent.invoke({"messages": "Then?"}, thread("t"))
    said = ["Hi.", "One.", "And?", "Another two.", "Then?", "Three."]
    assert texts(memory, "t") == said
    agent.invoke({"messages": "Else?"}, old)
    assert texts(memory, "t") == ["Hi.", "One.", "And?", "Two.", "Else?", "Four."]
    state = before("And?")
    edited = HumanMessage("Or?", id=agent.get_state(state).values["messages"][-1].id)
    agent.invoke(None, agent.update_state(state, {"messages": [edited]}))
    assert texts(memory, "t") == ["Hi.", "One.", "Or?", "Five."]


def test_runs_without_a_checkpointer_remove_nothing(memory: AgentMemory) -> None:
    """Wrong: a run takes another run's messages for a branch that its graph left."""
    middleware = AgentMemoryMiddleware(memory, user_id="ana", session_id="t")
    call = {"name": "weather", "args": {"city": "Rome"}, "id": "c-1"}
    memory.update("t", "Before.", user_id="ana")

    def weather(city: str) -> str:
        """Return the weather."""
        inner: Any = create_agent(model("Inner."), [], middleware=[middleware])
        inner.invoke({"messages": "Other question."})
        return city

    fake = model(AIMessage("", tool_calls=[call]), "Outer.", "Last.")
    agent: Any = create_agent(fake, [weather], middleware=[middleware])
    agent.invoke({"messages": "Question."})
    agent.invoke({"messages": "Again?"})
    assert {"Before.", "Question.", "Other question.", "Inner.", "Rome", "Outer.", "Again?",
            "Last."} <= {*texts(memory, "t")}  # fmt: skip


def test_agents_that_tools_run_have_sessions_of_their_own(memory: AgentMemory) -> None:
    """Wrong: an agent gets the task of another agent, or the user's chat has the tasks."""
    middleware, sent = AgentMemoryMiddleware(memory, user_id="ana"), list[str]()

    def expert(city: str) -> str:
        """Ask two experts for a city."""
        for task in (f"Is {city} warm?", f"Is {city} dry?"):
            inner: Any = create_agent(fake := model("Yes."), [], middleware=[middleware])
            inner.invoke({"messages": task})
            sent.extend(str(one.content) for one in fake.sent[0] if "memory>" not in one.content)
        return city

    calls = [{"name": "expert", "args": {"city": name}, "id": name} for name in ("Rome", "Oslo")]
    agent = agent_of(model(AIMessage("", tool_calls=calls), "Both."), middleware, expert)
    agent.invoke({"messages": "Compare them."}, thread("t"))
    assert texts(memory, "t") == ["Compare them.", "", "Rome", "Oslo", "Both."]
    assert sorted(sent) == ["Is Oslo dry?", "Is Oslo warm?", "Is Rome dry?", "Is Rome warm?"]
    assert len(memory.sessions(prefix="t/", user_id="ana")) == 4


def test_only_the_graphs_own_messages_are_stored(memory: AgentMemory) -> None:
    """Wrong: the log has what other middleware adds to a request, or its summaries."""

    @wrap_model_call
    def with_files(request: Any, handler: Any) -> Any:
        files = {"role": "user", "content": "Files: none."}
        return handler(request.override(messages=[*request.messages, files]))

    summaries = SummarizationMiddleware(
        model("Sum.", "Sum."), trigger=("messages", 3), keep=("messages", 1)
    )
    fake = model("One.", "Two.", "Three.")
    middleware: Any = [with_files, summaries, AgentMemoryMiddleware(memory, user_id="ana")]
    agent: Any = create_agent(fake, [], middleware=middleware, checkpointer=InMemorySaver())
    for question in ("Hi.", "And?", "Then?"):
        agent.invoke({"messages": question}, thread("t"))
    assert texts(memory, "t") == ["Hi.", "One.", "And?", "Two.", "Then?", "Three."]
    assert [one.content for one in fake.sent[-1]] == ["Hi.", "One.", "And?", "Two.", "Then?"]


@dataclass
class Who:
    user_id: str


def test_an_async_run_stores_messages_for_the_user_of_its_context(memory: AgentMemory) -> None:
    """Wrong: an async agent stores nothing, or not for the user in its context."""
    fake = model("Hello.")
    middleware = AgentMemoryMiddleware(
        memory, user_id=lambda runtime: runtime.context.user_id, session_id="fixed"
    )
    agent = create_agent(fake, [], middleware=[middleware], context_schema=Who)
    asyncio.run(agent.ainvoke({"messages": "Hi!"}, context=Who("ana")))  # type: ignore[arg-type]
    assert len(memory.history("fixed", user_id="ana")) == 2


def test_a_run_without_a_thread_id_raises_an_error(memory: AgentMemory) -> None:
    """Wrong: all runs without a thread share one session."""
    agent = create_agent(model("Hello."), [], middleware=[AgentMemoryMiddleware(memory)])
    with pytest.raises(InvalidInput, match="thread_id"):
        agent.invoke({"messages": "Hi!"})


def test_a_history_returns_its_messages_unchanged(memory: AgentMemory) -> None:
    """Wrong: ids, usage, artifacts or parts are lost, or a retry is stored twice."""
    history = AgentMemoryChatMessageHistory(memory, "s", user_id="ana")
    call = {"name": "weather", "args": {"city": "Rome"}, "id": "c-1", "type": "tool_call"}
    said = [
        HumanMessage(
            [{"type": "text", "text": "Look!"}, {"type": "image", "url": "http://x/a.png"}]
        ),
        AIMessage("", tool_calls=[call], id="a-1", response_metadata={"model": "m"}),
        ToolMessage("Sunny.", tool_call_id="c-1", artifact={"degrees": 21}, id="t-1"),
        AIMessage("It is sunny.", id="a-2"),
    ]
    history.add_messages(said)
    history.add_messages(said[1:])
    assert history.messages == said
    odd = ToolMessage("x", tool_call_id="c-2", artifact={"data": b"\x00", "n": float("nan")})
    history.add_messages([AIMessage("", tool_calls=[{**call, "id": "c-2"}]), odd])
    assert history.messages[-1].content == "x"
    memory.update("s", {"role": "user", "content": "From elsewhere."})
    assert history.messages[-1] == HumanMessage("From elsewhere.")
    recalled = AgentMemoryChatMessageHistory(memory, "s", user_id="ana", recalled=True)
    assert recalled.messages[-1].content == "From elsewhere."
    asyncio.run(history.aadd_messages([HumanMessage("Later.")]))
    assert asyncio.run(history.aget_messages())[-1].content == "Later."
    history.clear()
    assert history.messages == []


@pytest.mark.parametrize(
    "view",
    [{"role": "user", "content": "hi"}, {"role": "system", "content": "be kind"},
     {"role": "assistant", "content": "hello", "name": "bot"},
     {"role": "tool", "tool_call_id": "c", "content": "done"},
     {"role": "assistant", "content": None, "tool_calls": [
         {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}]}],
)  # fmt: skip
def test_a_chat_message_survives_a_format_round_trip(view: dict[str, Any]) -> None:
    """Wrong: a chat message changes when it is converted to LangChain's format and back."""
    (raw,) = from_chat(view)
    assert to_chat(raw) == [view]
    assert convert_to_messages([raw])
    assert to_chat({"type": "remove", "content": "", "id": "x"}) == []
    assert to_chat({"type": 3}) == []
