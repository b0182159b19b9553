"""Tools of a completion: functions, and tools that the caller runs."""

import json
import subprocess
import sys
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from agent_memory import AgentMemory
from agent_memory.errors import InvalidMessage, ToolRefused
from agent_memory.testing import FakeLLM
from tests.integration.turning import WEATHER, add, fake, logged, memory, results

__all__ = ["fake", "memory"]


def asks(*results: Any) -> list[Any]:
    return [{"role": "user", "content": "What is the weather?"}, *results]


def answers(call_id: str, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


class Place(BaseModel):
    """A place."""

    city: str
    country: str = "NO"


def test_the_schema_of_a_function_matches_its_signature(memory: AgentMemory, fake: FakeLLM) -> None:
    """Wrong: the schema requires a parameter with a default, or lacks a description."""

    def look(
        place: Place,
        unit: Literal["c", "f"] = "c",
        *,
        days: Annotated[int, Field(ge=1, le=7, description="How far ahead.")] = 1,
    ) -> str:
        """Looks up the weather.

        Use it for any place.
        """
        return f"{place.city} {unit} {days}"

    fake.call(("look", {"place": {"city": "Oslo"}, "days": 2}))
    memory.completion("s", "Weather?", tools=[look])
    [tool] = fake.requests[0]["tools"]
    described = tool["function"]
    assert (tool["type"], described["name"]) == ("function", "look")
    assert described["description"] == "Looks up the weather.\n\nUse it for any place."
    assert described["parameters"]["required"] == ["place"]
    assert described["parameters"]["additionalProperties"] is False
    assert described["parameters"]["properties"]["days"] == {
        "default": 1, "description": "How far ahead.", "maximum": 7, "minimum": 1,
        "type": "integer",
    }  # fmt: skip
    assert described["parameters"]["properties"]["unit"]["enum"] == ["c", "f"]
    assert results(fake) == ["Oslo c 2"]


class Clock:
    """A class whose method is a tool."""

    async def now(self, zone: str) -> Any:
        """Tells the time."""
        return {"zone": zone, "on": date(2026, 1, 5), "places": [Place(city="Oslo")]}


def odd(text: str) -> Any:
    """Returns a value that JSON cannot encode."""
    return {"half": "\ud83d", "text": text}


@pytest.mark.parametrize(
    ("made", "arguments", "told"),
    [
        (add, {"a": 2, "b": 3}, "5"),
        (
            Clock().now,
            {"zone": "UTC"},
            '{"zone":"UTC","on":"2026-01-05","places":[{"city":"Oslo","country":"NO"}]}',
        ),
        (odd, {"text": "x"}, "{'half': '\\ud83d', 'text': 'x'}"),
    ],
    ids=["function", "async-method", "odd"],
)
def test_functions_are_called(
    memory: AgentMemory, fake: FakeLLM, made: Callable[..., Any], arguments: Any, told: str
) -> None:
    """Wrong: the result of an async function, or one that JSON cannot encode, is lost."""
    fake.call((made.__name__, arguments))
    memory.completion("s", "Go", tools=[made])
    assert results(fake) == [told]
    assert len(logged(memory)) == 4


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"a": "x"}, "a: Input should be a valid integer"),
        ({"a": 1, "c": 2}, "c: Unexpected keyword argument"),
        ({}, "a: Missing required argument"),
        ("not json", "arguments: Invalid JSON"),
        ("3", "arguments: "),
        ("", "a: Missing required argument"),
    ],
)
def test_bad_arguments_are_returned_to_the_model_as_an_error(
    memory: AgentMemory, fake: FakeLLM, arguments: Any, told: str
) -> None:
    """Wrong: a function is called with invalid arguments, or they fail the turn."""
    called: list[int] = []

    def count(a: int) -> str:
        called.append(a)
        return "counted"

    fake.call(("count", arguments))
    memory.completion("s", "Go", tools=[count])
    assert told in results(fake)[0]
    assert called == []
    assert logged(memory)[-1] == ("assistant", "Done.")


def test_a_function_can_return_a_refusal_to_the_model(memory: AgentMemory, fake: FakeLLM) -> None:
    """Wrong: a function can refuse a call only by failing the turn."""

    def book(day: str) -> str:
        raise ToolRefused(f"There is nothing free on {day}. Try another day.")

    fake.call(("book", {"day": "Monday"}))
    memory.completion("s", "Book it", tools=[book])
    assert results(fake) == ["There is nothing free on Monday. Try another day."]


def test_the_model_gets_an_error_for_an_unknown_tool(memory: AgentMemory, fake: FakeLLM) -> None:
    """Wrong: a call of an unknown tool fails the turn."""
    fake.call(("drop_tables", {}))
    memory.completion("s", "Go", tools=[add])
    assert results(fake)[0].startswith("There is no tool 'drop_tables'.")
    fake.call(("drop_tables", {}))
    memory.completion("t", "Go")
    assert len(logged(memory, "t")) == 4


def test_the_caller_receives_calls_of_its_tools(memory: AgentMemory, fake: FakeLLM) -> None:
    """Wrong: a call of the caller's tool is stored before it has a result, or our tools run before
    the caller has answered, or although it has answered their calls too."""
    ran: list[int] = []

    def count(a: int) -> int:
        ran.append(a)
        return a

    fake.call(("count", {"a": 1}), ("get_weather", {"city": "Oslo"}))
    response = memory.completion("s", "What is the weather?", tools=[WEATHER, count])
    calls = response.choices[0].message.tool_calls
    assert json.loads(calls[1].function.arguments) == {"city": "Oslo"}
    assert memory.history("s") == []
    with pytest.raises(InvalidMessage, match=f"no result: '{calls[1].id}'"):
        memory.completion("s", asks(response, answers(calls[0].id, "x")), tools=[WEATHER, count])
    with pytest.raises(InvalidMessage, match="no result"):
        memory.completion("s", asks(response), tools=[WEATHER, count])
    fake.reply("It rains.")
    both = [answers(call.id, "rain") for call in calls]
    memory.completion("s", asks(response, *both), tools=[WEATHER, count])
    assert logged(memory) == [
        ("user", "What is the weather?"), ("assistant", "count, get_weather"),
        ("tool", "rain"), ("tool", "rain"), ("assistant", "It rains."),
    ]  # fmt: skip
    assert ran == []


@pytest.mark.parametrize("dumped", [False, True])
def test_earlier_rounds_are_stored_after_a_call_of_the_callers_tool(
    memory: AgentMemory, fake: FakeLLM, dumped: bool
) -> None:
    """Wrong: results of our tools are lost while the caller runs its tool, or they run twice."""
    ran: list[int] = []

    def count(a: int) -> int:
        ran.append(a)
        return a

    given: list[Any] = asks()
    tools = [WEATHER, count]
    for city, first in (("Oslo", 1), ("Rome", 2)):
        fake.call(("count", {"a": first}))
        fake.call(("count", {"a": 10 * first}), ("get_weather", {"city": city}))
        response: Any = memory.completion("s", given, tools=tools)
        call = response.choices[0].message.tool_calls[1]
        given += [response.model_dump() if dumped else response, answers(call.id, city)]
        assert memory.history("s") == []
    fake.reply("Rain and sun.")
    memory.completion("s", given, tools=tools)
    assert logged(memory) == [
        ("user", "What is the weather?"),
        ("assistant", "count"), ("tool", "1"),
        ("assistant", "count, get_weather"), ("tool", "Oslo"), ("tool", "10"),
        ("assistant", "count"), ("tool", "2"),
        ("assistant", "count, get_weather"), ("tool", "Rome"), ("tool", "20"),
        ("assistant", "Rain and sun."),
    ]  # fmt: skip
    assert ran == [1, 10, 2, 20]
    sent = fake.requests[-1]["messages"]
    roles = [role for role, _ in logged(memory)[:-1]]
    assert [m["role"] for m in sent if m["role"] != "system"] == roles


def test_the_caller_receives_calls_in_the_old_form(memory: AgentMemory, fake: FakeLLM) -> None:
    """Wrong: a call in the old `function_call` form is stored as the answer."""
    old = {"name": "get_weather", "arguments": "{}"}
    fake.reply({"content": None, "function_call": old})
    response = memory.completion("s", "What is the weather?", functions=[WEATHER["function"]])
    assert response.choices[0].message.function_call.name == "get_weather"
    assert memory.history("s") == []
    rain = {"role": "function", "name": "get_weather", "content": "rain"}
    memory.completion("s", asks(response, rain))
    assert len(logged(memory)) == 4


def test_tools_need_no_other_package(tmp_path: Path) -> None:
    """Wrong: with tools litellm imports its proxy, which needs a package that is not installed."""
    code = """
import sys
sys.modules["mcp"] = None  # importing it fails
from agent_memory import AgentMemory
from agent_memory.testing import FakeLLM
with FakeLLM("Done.") as fake, AgentMemory(
    store="memory://", model="openai/any", api_base=fake.api_base, api_key="k"
) as memory:
    memory.completion("s", "Hello.", tools=memory.tools("s"))
    assert fake.requests[-1]["tools"]
    assert set(fake.requests[-1]) == {"path", "model", "messages", "tools"}, fake.requests[-1]
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
