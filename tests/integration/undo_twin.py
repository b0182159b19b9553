"""Helpers for tests of undoing: compare all that two memories return."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import pytest

from agent_memory import AgentMemory, Block, ExtractiveMemory, FlushToLTM, VectorMemory, operations
from agent_memory.engine.user import User
from agent_memory.stores.sql.store import MemoryStore
from agent_memory.testing import FakeLLM
from tests.integration.fact_model import at, dated

QUESTIONS = ("What is the dog called?", "Where does Ada work?", "kayak on the river", "moon")
DAY = at("2024-01-01")


@contextmanager
def opened(
    fake: FakeLLM, *blocks: Block, store: Any = "memory://", **fields: Any
) -> Iterator[AgentMemory]:
    """Open a memory with these blocks, or with one of each kind that absorbs."""
    given: dict[str, Any] = {
        "overflow": FlushToLTM(blocks=blocks or [VectorMemory(), ExtractiveMemory()]),
        "embedding": "openai/vectors",
        "model": "openai/any",
    }
    with AgentMemory(
        store=store, api_base=fake.api_base, api_key="k", recall_timeout=60, **{**given, **fields}
    ) as memory:
        yield memory


@contextmanager
def twins(fake: FakeLLM, *blocks: Block, **fields: Any) -> Iterator[tuple[AgentMemory, ...]]:
    """Open a memory over the store to test, and one over its own store."""
    with ExitStack() as stack:
        one = stack.enter_context(opened(fake, *blocks, **fields))
        other = opened(fake, *blocks, **{**fields, "store": MemoryStore()})
        yield one, stack.enter_context(other)


def view(memory: AgentMemory, session_id: str = "s", user: str = "ada") -> dict[str, Any]:
    """Return all that the calls return, without versions and scores."""
    found = [memory.search(question, user_id=user, limit=50) for question in QUESTIONS]
    contexts = [memory.get(session_id, question) for question in (None, *QUESTIONS)]
    return {
        "history": memory.history(session_id),
        "heads": [replace(head, version=0, created_at=DAY) for head in memory.sessions()],
        "contexts": [context.to_messages() for context in contexts],
        "warnings": [context.warnings for context in contexts],
        "found": [sorted((one.block, one.id, one.text) for one in recalls) for recalls in found],
        "sources": [sorted((one.id, one.sources) for one in recalls) for recalls in found],
        **(_known(memory.user(user)) if "extractive" in memory.blocks else {}),
        "dead": operations.dead_letters(memory),
        "stats": replace(
            memory.stats(), usage=None, prompts=None, usage_by_purpose={}, recalls=None
        ),
    }


def _known(user: User) -> dict[str, Any]:
    return {
        "facts": user.facts(),
        "then": user.facts(as_of=at("2024-01-07"), known_at=at("2024-01-07")),
        "audit": user.audit(),
        "stale": user.stale(),
    }


def scores(memory: AgentMemory, user: str = "ada") -> list[dict[str, float]]:
    return [
        {one.id: one.score for one in memory.search(question, user_id=user, limit=50)}
        for question in QUESTIONS
    ]


def assert_alike(one: AgentMemory, twin: AgentMemory) -> None:
    """Assert that both memories return the same once all is absorbed."""
    for memory in (one, twin):
        assert {done.error for done in memory.flush()} <= {None}
    mine, others = view(one), view(twin)
    for name, value in others.items():
        assert mine[name] == value, name
    for here, there in zip(scores(one), scores(twin), strict=True):
        assert here == pytest.approx(there, abs=2e-5)


def everything(memory: AgentMemory, session_id: str = "s", user: str = "ada") -> str:
    """Return all that the calls return, as one text."""
    return json.dumps(view(memory, session_id, user), default=str)


def turn(question: str, answer: str, day: str = "2024-01-05") -> list[dict[str, Any]]:
    return [dated(question, day), dated(answer, day, role="assistant")]


def with_tool(question: str, result: str, answer: str, number: int) -> list[dict[str, Any]]:
    function = {"name": "look_up", "arguments": json.dumps({"what": result})}
    call = {"id": f"call-{number}", "type": "function", "function": function}
    return [
        dated(question),
        dated(None, role="assistant", tool_calls=[call]),
        dated(result, role="tool", tool_call_id=f"call-{number}"),
        dated(answer, role="assistant"),
    ]
