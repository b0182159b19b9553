"""A completion retried with the same key returns the stored answer, without a call to the model."""

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from agent_memory import AgentMemory
from agent_memory.errors import Conflict, InvalidInput
from agent_memory.testing import FakeLLM
from tests.histories import call, result
from tests.integration.turning import WEATHER, fake, memory, remembering
from tests.kit import texts as said

__all__ = ["fake", "memory"]


def test_a_turn_is_asked_once(fake: FakeLLM, memory: AgentMemory) -> None:
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


def test_a_turn_that_failed_is_asked_again(fake: FakeLLM, memory: AgentMemory) -> None:
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


def test_a_turn_whose_tools_the_caller_runs(fake: FakeLLM, memory: AgentMemory) -> None:
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


def test_two_that_ask_at_once(fake: FakeLLM, memory: AgentMemory) -> None:
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


def test_an_answer_that_was_taken_back(fake: FakeLLM, memory: AgentMemory) -> None:
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


def test_another_answer_is_put_down_once(fake: FakeLLM, memory: AgentMemory) -> None:
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
