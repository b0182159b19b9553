"""`completion`: recall, model and tools in one call, stored as a whole turn or not at all."""

import itertools
import json
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from agent_memory import AgentMemory, AgentMemoryError, InvalidInput, Message, TokenCounter
from agent_memory.errors import (
    Conflict,
    ContextTooLong,
    ModelForbidden,
    ModelOutputInvalid,
    ModelRequired,
    ModelUnavailable,
)
from agent_memory.testing import FakeLLM
from agent_memory.testing.contract import together
from tests.histories import call, result
from tests.integration.turning import FACT, WEATHER, add, fake, logged, memory, remembering, results
from tests.kit import note_waits
from tests.kit import texts as said

__all__ = ["fake", "memory"]


@pytest.fixture
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retry a failed request immediately."""
    note_waits(monkeypatch)


COUNTER = TokenCounter()


def test_one_call_recalls_completes_and_stores_the_turn(memory: AgentMemory, fake: FakeLLM) -> None:
    """Wrong: the model is called without recalls, or the turn is not stored."""
    fake.reply("Hello, Ada.")
    response = memory.completion("s", "I'm Ada.", user_id="ada", temperature=0.5, n=1)
    assert response.choices[0].message.content == "Hello, Ada."
    assert type(response).__name__ == "ModelResponse"
    memory.completion("s", {"role": "user", "content": "Who am I?"}, user_id="ada")
    assert logged(memory) == [
        ("user", "I'm Ada."), ("assistant", "Hello, Ada."),
        ("user", "Who am I?"), ("assistant", "Done."),
    ]  # fmt: skip
    assert memory.sessions()[0].user_id == "ada"
    first, second = fake.requests
    assert first["temperature"] == 0.5
    assert "tools" not in first
    assert "tool_choice" not in first
    assert FACT in str(first["messages"])
    assert [m["content"] for m in second["messages"] if m["role"] != "system"] == [
        "I'm Ada.", "Hello, Ada.", "Who am I?",
    ]  # fmt: skip


def test_usage_and_cost_are_counted(memory: AgentMemory, fake: FakeLLM) -> None:
    """Wrong: only the last round is counted, or a stream is not."""
    fake.call(("add", {"a": 1}))
    memory.completion("s", "One and one?", tools=[add])
    one = memory.stats().usage
    assert (one.calls, one.failures, one.completion_tokens) == (2, 0, 1)
    sent = sum(len(json.dumps(request["messages"]).split()) for request in fake.requests)
    assert one.prompt_tokens == sent
    assert one.cost > 0
    fake.call(("add", {"a": 1}))
    for _ in memory.completion("t", "One and one?", tools=[add], stream=True):
        pass
    both = memory.stats().usage
    assert (both.calls, both.prompt_tokens) == (4, 2 * sent)
    assert both.cost == pytest.approx(2 * one.cost)


def test_the_model_argument_replaces_the_configured_model(fake: FakeLLM) -> None:
    """Wrong: `model=` does not replace the configured model, or has no effect without one."""
    with remembering(fake, model=None) as memory:
        with pytest.raises(ModelRequired, match="model="):
            memory.completion("s", "Hello")
        memory.completion("s", "Hello", model="openai/another")
    assert [request["model"] for request in fake.requests] == ["another"]


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"n": 2}, "n must be 1"),
        ({"max_rounds": -1}, "max_rounds is -1"),
        ({"messages": []}, "messages cannot be an option"),
        ({"api_key": "k"}, "api_key cannot be an option"),
        ({"tools": [3]}, "Cannot offer a int"),
        ({"tools": [WEATHER, WEATHER]}, "Two tools are named 'get_weather'"),
        ({"tools": [add, add]}, "Two tools are named 'add'"),
        ({"tools": [lambda q: q]}, "no name that a model could use"),
        ({"tools": [len]}, "without names"),
        ({"tools": [max]}, "have no JSON schema"),
    ],
)
def test_invalid_arguments_and_settings_are_refused(
    memory: AgentMemory, fake: FakeLLM, fields: dict[str, Any], told: str
) -> None:
    """Wrong: a bad argument fails only after a call to the model, or stores a session."""
    with pytest.raises(InvalidInput, match=told):
        memory.completion("s", "Hello", **fields)
    assert fake.requests == []
    assert memory.sessions() == []


def test_tools_of_the_memory_are_run(memory: AgentMemory, fake: FakeLLM) -> None:
    """Wrong: a note that the model writes is lost, or stored for another user."""
    fake.call(("memory_write", {"text": "Ada drinks tea."}), content="Noted soon.")
    fake.reply("Noted.")
    memory.completion("s", "I drink tea.", user_id="ada", tools=memory.tools("s", user_id="ada"))
    assert [note.text for note in memory.user("ada").notes().all()] == ["Ada drinks tea."]
    assert logged(memory) == [
        ("user", "I drink tea."),
        ("assistant", "memory_write"),
        ("tool", results(fake)[0]),
        ("assistant", "Noted."),
    ]
    assert results(fake)[0].startswith("Noted under the id")
    first, second = fake.requests
    assert {one["function"]["name"] for one in first["tools"]} >= {"memory_read", "memory_write"}
    assert second["messages"][: len(first["messages"])] == first["messages"]
    assert second["messages"][-2]["content"] == "Noted soon."


def test_tool_arguments_cannot_select_another_user(memory: AgentMemory, fake: FakeLLM) -> None:
    """Wrong: a tool call that names another user reads or deletes that user's data."""
    secret = memory.user("ada").notes().add("Ada's door code is Q-7731.")
    for arguments in (
        {"query": "door code", "user_id": "ada"},
        {"query": "door code", "session_id": "s"},
        {"query": "door code"},
    ):
        fake.call(("memory_read", arguments))
    fake.call(("memory_forget", {"id": secret.id}))
    tools = memory.tools("b", user_id="bob")
    memory.completion("b", "Ada's door code?", user_id="bob", tools=tools)
    assert "Q-7731" not in str(fake.requests)  # no random id contains it
    named, session, plain, forgotten = results(fake)
    assert "user_id: Extra inputs are not permitted" in named
    assert "session_id: Extra inputs are not permitted" in session
    assert "Nothing in memory" in plain or FACT in plain
    assert "has the id" in forgotten
    assert [note.text for note in memory.user("ada").notes().all()] == [
        "Ada's door code is Q-7731."
    ]


@pytest.mark.parametrize("most", [0, 1, 3])
def test_tools_are_disabled_after_max_rounds(memory: AgentMemory, fake: FakeLLM, most: int) -> None:
    """Wrong: a model that always calls tools is called more than `max_rounds` times."""
    for _ in range(most):
        fake.call(("add", {"a": 1}))
    memory.completion("s", "Go", tools=[add], max_rounds=most, tool_choice="required")
    choices = [request.get("tool_choice") for request in fake.requests]
    assert choices == [*["required", *[None] * most][:most], "none"]
    assert len(logged(memory)) == 2 + 2 * most


def test_a_turn_without_a_final_answer_is_not_stored(memory: AgentMemory, fake: FakeLLM) -> None:
    """Wrong: a turn that ends with a call is stored."""
    for _ in range(3):
        fake.call(("add", {"a": 1}))
    with pytest.raises(ModelOutputInvalid, match="max_rounds=2"):
        memory.completion("s", "Go", tools=[add], max_rounds=2)
    assert len(fake.requests) == 3
    assert memory.history("s") == []


def test_old_tool_results_are_shortened_before_new_ones(fake: FakeLLM) -> None:
    """Wrong: the newest result is cut to a few words, a long turn fails after it was paid for, or
    the log stores results cut."""

    def read(page: int) -> str:
        return f"Page {page}. " + "The river rose again. " * 2_500

    with remembering(fake, max_tokens=8_000) as memory:
        memory.update("s", [{"role": "system", "content": "Be brief."}, *[
            {"role": "user", "content": "word " * 300}, {"role": "assistant", "content": "word"}
        ] * 9])  # fmt: skip
        for page in range(8):
            fake.call(("read", {"page": page}))
        memory.completion("s", "What does the book say?", tools=[read], max_rounds=8)
        assert len(fake.requests) == 9
        for page, request in enumerate(fake.requests[1:]):
            messages = request["messages"]
            assert COUNTER.context(messages) <= 8_000
            assert messages[0]["content"] == "Be brief."
            assert "What does the book say?" in str(messages)
            told = messages[-1]["content"]
            assert told.startswith(f"Page {page}. The river")
            assert "characters left out" in told
            assert COUNTER.text(told) > 2_500
            assert sum("tool_calls" in message for message in messages) == page + 1
        said = [one.message.text() for one in memory.history("s") if one.message.role == "tool"]
        assert said == [read(page) for page in range(8)]


class Failure(Exception):
    """An exception of a tool."""


def failing_tool(fake: FakeLLM) -> dict[str, Any]:
    def fail(a: int) -> str:
        raise Failure("the disk is full")

    fake.call(("add", {"a": 1}))
    fake.call(("fail", {"a": 1}))
    return {"tools": [add, fail]}


def interrupted_tool(fake: FakeLLM) -> dict[str, Any]:
    async def stop() -> str:
        raise KeyboardInterrupt

    fake.call(("stop", {}))
    return {"tools": [stop]}


def interrupted_model(fake: FakeLLM) -> dict[str, Any]:
    def interrupt(body: dict[str, Any]) -> str:
        os.kill(os.getpid(), signal.SIGINT)
        threading.Event().wait(0.2)
        return "too late"

    fake.default = interrupt
    return {}


def after_a_round(failing: Callable[[FakeLLM], None]) -> Callable[[FakeLLM], dict[str, Any]]:
    def script(fake: FakeLLM) -> dict[str, Any]:
        fake.call(("add", {"a": 1}))
        failing(fake)
        return {"tools": [add]}

    return script


def out(way: Any) -> Callable[[FakeLLM], dict[str, Any]]:
    return lambda fake: fake.outage(way) or {"timeout": 5}


FAILURES: dict[str, tuple[Callable[[FakeLLM], dict[str, Any]], type[BaseException]]] = {
    "no key": (lambda fake: fake.fail(401) or {}, ModelForbidden),
    "too long": (
        lambda fake: fake.fail(400, code="context_length_exceeded") or {}, ContextTooLong,
    ),
    "down": (lambda fake: fake.fail(503, times=4) or {}, ModelUnavailable),
    "rubbish": (lambda fake: [fake.malformed() for _ in range(4)] and {}, ModelUnavailable),
    "empty": (lambda fake: fake.reply("  \n") or {}, ModelOutputInvalid),
    **{way: (out(way), AgentMemoryError) for way in ("refuse", "error", "html", "half", "nan")},
    "no key later": (after_a_round(lambda fake: fake.fail(401)), ModelForbidden),
    "down later": (after_a_round(lambda fake: fake.fail(500, times=4)), ModelUnavailable),
    "empty later": (after_a_round(lambda fake: fake.reply("")), ModelOutputInvalid),
    "failing tool": (failing_tool, Failure),
    "interrupted tool": (interrupted_tool, KeyboardInterrupt),
    "interrupted model": (interrupted_model, KeyboardInterrupt),
}  # fmt: skip


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", FAILURES)
def test_a_turn_that_fails_leaves_no_trace(
    memory: AgentMemory, fake: FakeLLM, no_waits: None, name: str, stream: bool
) -> None:
    """Wrong: a part of a failed turn is stored, or its error shows a key, or is litellm's."""
    script, error = FAILURES[name]
    memory.completion("s", "Before", user_id="ada")
    before = memory.history("s")
    options = script(fake)
    with pytest.raises(error) as caught:
        list(memory.completion("s", "Lost", user_id="ada", stream=stream, **options))
    assert "canary" not in str(caught.value)
    assert memory.history("s") == before
    fake.clear()
    fake.default = "Done."
    memory.completion("s", "Kept", user_id="ada", **options)
    assert [text for _, text in logged(memory)] == ["Before", "Done.", "Kept", "Done."]


def test_concurrent_turns_do_not_interleave_in_the_log(memory: AgentMemory, fake: FakeLLM) -> None:
    """Wrong: concurrent turns wait for each other's model, or are interleaved in the log."""
    gate = threading.Barrier(4)

    def answer(body: dict[str, Any]) -> Any:
        gate.wait()
        said = body["messages"][-1]
        if said["role"] == "tool":
            return f"Sum: {said['content']}"
        number = int(said["content"])
        return call([f"call_{number}"], "add", json.dumps({"a": number}))

    fake.default = answer
    together([partial(memory.completion, "s", str(n), tools=[add]) for n in range(4)])
    said = logged(memory)
    turns = [said[start : start + 4] for start in range(0, len(said), 4)]
    assert sorted(turns) == [
        [("user", str(n)), ("assistant", "add"), ("tool", str(n + 1)),
         ("assistant", f"Sum: {n + 1}")]
        for n in range(4)
    ]  # fmt: skip


def test_other_session_calls_do_not_wait_for_the_model(memory: AgentMemory, fake: FakeLLM) -> None:
    """Wrong: an update, a get or a flush of the session waits for the model."""

    def answer(body: dict[str, Any]) -> str:
        memory.update("s", Message(role="user", content="Meanwhile"))
        memory.get("s", "Hello")
        memory.flush("s")
        return "Done."

    fake.default = answer
    memory.completion("s", "Hello")
    assert [text for _, text in logged(memory)] == ["Meanwhile", "Hello", "Done."]


def test_a_retried_turn_does_not_call_the_model_again(fake: FakeLLM, memory: AgentMemory) -> None:
    """Wrong: a retry calls the model again, stores a second turn, or raises."""
    fake.reply("Hello!")
    first = memory.completion("s", "hi", key="k")
    again = memory.completion("s", "hi", key="k")
    assert len(fake.requests) == 1
    assert again.choices[0].message.content == "Hello!"
    assert again.choices[0].message.role == first.choices[0].message.role
    assert again.model == memory.config.model
    chunks = memory.completion("s", "hi", key="k", stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "Hello!"
    assert chunks.response.choices[0].message.content == "Hello!"
    assert said(memory) == ["hi", "Hello!"]
    with pytest.raises(Conflict):
        memory.completion("s", "hi there", key="k")
    assert len(fake.requests) == 1


def test_a_failed_turn_can_be_retried_under_its_key(fake: FakeLLM, memory: AgentMemory) -> None:
    """Wrong: a turn that failed counts as stored for its key."""
    with pytest.raises(InvalidInput):
        memory.completion("s", "hi", key="")
    fake.reply("Never stored.")
    stream = memory.completion("s", "hi", key="k", stream=True)
    next(stream)
    stream.close()
    fake.clear()
    fake.reply("Hello!")
    assert memory.completion("s", "hi", key="k").choices[0].message.content == "Hello!"
    assert said(memory) == ["hi", "Hello!"]


def test_a_retried_tool_loop_of_the_caller_is_one_turn(fake: FakeLLM, memory: AgentMemory) -> None:
    """Wrong: a retry from the first or the last step of a tool loop counts as another turn."""
    fake.call(("get_weather", {"city": "Oslo"}))
    handed = memory.completion("s", "weather?", tools=[WEATHER], key="k")
    assert said(memory) == []
    call_id = handed.choices[0].message.tool_calls[0].id
    result = {"role": "tool", "tool_call_id": call_id, "content": "rain"}
    fake.reply("It rains.")
    turn: list[Any] = [{"role": "user", "content": "weather?"}, handed, result]
    memory.completion("s", turn, tools=[WEATHER], key="k")
    asked = len(fake.requests)
    for again in (turn, "weather?"):
        found = memory.completion("s", again, tools=[WEATHER], key="k")
        assert found.choices[0].message.content == "It rains."
    assert len(fake.requests) == asked
    assert said(memory) == ["weather?", "", "rain", "It rains."]


def test_the_second_of_two_concurrent_turns_conflicts(fake: FakeLLM, memory: AgentMemory) -> None:
    """Wrong: two concurrent turns under one key are both stored."""
    first = memory.before_turn("s", "hi")
    second = memory.before_turn("s", "hi")
    head = memory.after_turn(first, "one", key="k", expected_end=0)
    assert memory.after_turn(first, "one", key="k", expected_end=0) == head
    with pytest.raises(Conflict):
        memory.after_turn(second, "two", key="k")
    with pytest.raises(Conflict, match="ends at 2"):
        memory.after_turn(second, "two", expected_end=0)
    assert memory.session("s").after_turn(second, "two", key="l", expected_end=2).end == 4


@pytest.mark.parametrize("stream", [False, True])
def test_concurrent_calls_with_a_key_return_the_stored_answer(url: str, *, stream: bool) -> None:
    """Wrong: the call that is stored second returns an answer that is not in the log."""
    both, numbers = threading.Barrier(2, timeout=20), itertools.count(1)

    def answer(body: dict[str, Any]) -> str:
        both.wait()
        return f"Answer {next(numbers)}"

    def ask(_: int) -> str | None:
        response = memory.completion("s", "hi", key="k", stream=stream)
        if stream:
            assert [chunk.choices[0].delta.content for chunk in response]
            response = response.response
        content: str | None = response.choices[0].message.content
        return content

    with (
        FakeLLM(answer) as fake,
        remembering(fake, url, blocks=[]) as memory,
        ThreadPoolExecutor(2) as pool,
    ):
        answers = list(pool.map(ask, range(2)))
        assert said(memory) == ["hi", answers[0]]
        assert answers[1] == answers[0]
        assert len(fake.requests) == 2


def test_a_retry_after_a_pop_of_its_answer_conflicts(fake: FakeLLM, memory: AgentMemory) -> None:
    """Wrong: a retry returns another message or None after its answer was popped."""
    fake.reply("Hello!")
    memory.completion("s", "hi", key="k")
    memory.pop("s")
    with pytest.raises(Conflict, match="no longer in the log"):
        memory.completion("s", "hi", key="k")
    memory.pop("s")
    fake.reply("Hello again!")
    memory.completion("s", "hi", key="k")
    assert said(memory) == ["hi", "Hello again!"]


def test_a_retried_regenerated_answer_is_stored_once(fake: FakeLLM, memory: AgentMemory) -> None:
    """Wrong: a retry with the answer to a regenerated question is refused, or stored twice."""
    fake.reply("Hello!")
    memory.completion("s", "hi")
    turn = memory.regenerate("s")
    longer = [
        call(["c1"], "get_weather"), result("c1", "rain"),
        {"role": "assistant", "content": "It rains."},
    ]  # fmt: skip
    heads = [memory.after_turn(turn, longer, key="k") for _ in range(3)]
    assert len({head.end for head in heads}) == 1
    assert said(memory) == ["hi", "", "rain", "It rains."]
    with pytest.raises(InvalidInput, match="has new messages"):
        memory.after_turn(turn, "Other.", key="k")
