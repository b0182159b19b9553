"""Helpers for tests of completions: a memory with a scripted model, tools, and the log."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from agent_memory import AgentMemory, StaticMemory, TokenCounter, Trim
from agent_memory.testing import FakeLLM
from tests.histories import unpaired

MODEL = "openai/gpt-4o-mini"
FACT = "The harbour master is called Ulla."

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather now.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
"""A tool that only the caller can run."""


@contextmanager
def remembering(fake: FakeLLM, store: Any = "memory://", **fields: Any) -> Iterator[AgentMemory]:
    """Open a memory with a scripted model. Its requests must keep the budget and pair each call."""
    settings = {"model": MODEL, "api_base": fake.api_base, "api_key": "sk-test-canary", **fields}
    with AgentMemory(store=store, overflow=Trim(), **settings) as memory:
        yield memory
    counter = TokenCounter(MODEL)
    for request in fake.requests:
        assert counter.context(request["messages"]) <= memory.config.max_tokens
        assert unpaired(request["messages"]) == []


def add(a: int, b: int = 1) -> int:
    """Adds two numbers."""
    return a + b


def logged(memory: AgentMemory, session_id: str = "s") -> list[tuple[str | None, str]]:
    """Return the roles and texts of a session's log, with names in place of calls."""
    found: list[tuple[str | None, str]] = []
    for entry in memory.history(session_id):
        calls = [one["function"]["name"] for one in entry.message.tool_calls or ()]
        found.append((entry.message.role, ", ".join(calls) or entry.message.text()))
    return found


def results(fake: FakeLLM, request: int = -1) -> list[str]:
    sent = fake.requests[request]["messages"]
    return [message["content"] for message in sent if message["role"] == "tool"]


@pytest.fixture
def fake() -> Iterator[FakeLLM]:
    with FakeLLM("Done.") as server:
        yield server


@pytest.fixture
def memory(fake: FakeLLM, url: str) -> Iterator[AgentMemory]:
    with remembering(fake, url, blocks=[StaticMemory(facts=[FACT])]) as memory:
        yield memory
