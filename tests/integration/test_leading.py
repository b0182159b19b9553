"""`memory_role="leading"`: summary and memory are part of the first system message."""

from typing import Any

import pytest

from agent_memory import AgentMemory, StaticMemory, Summarize
from agent_memory.core.tokens.counter import TokenCounter

FACTS = StaticMemory(facts=["The office opens at eight."])
COUNTER = TokenCounter()


def told(memory: AgentMemory, **how: Any) -> list[dict[str, Any]]:
    context = memory.get("s", "When does the office open?", **how)
    chat = context.to_messages()
    assert COUNTER.context(chat) == context.tokens <= context.max_tokens
    return chat


@pytest.mark.parametrize("system", ["Be short.", [{"type": "text", "text": "Be short."}], None])
def test_there_is_one_system_message_at_the_top(system: Any) -> None:
    """Wrong: a context has a second system message, which chat templates refuse."""
    strategy = Summarize(max_summary_tokens=60, max_messages=4)
    with AgentMemory(
        "memory://", max_tokens=600, blocks=[FACTS], overflow=strategy, memory_role="leading"
    ) as memory:
        if system is not None:
            memory.update("s", {"role": "system", "content": system})
        for i in range(12):
            memory.update("s", {"role": "user", "content": f"Item {i} is coded QX-{i} for good."})
        chat = told(memory)
        assert [one["role"] for one in chat].count("system") == 1
        top = str(chat[0]["content"])
        parts = [top.find(one) for one in ("Be short.", "<summary>", "<memory>")]
        assert parts == sorted(parts)
        assert parts[1:] != [-1, -1]
        assert (parts[0] == -1) == (system is None)
        assert all("<memory>" not in str(one) for one in chat[1:])
        before = str(memory.history("s")[0].message.content)
        assert "<summary>" not in before  # the log stores the original message
        for budget in (64, 90, 120, 200):
            small = told(memory, max_tokens=budget)
            assert sum(one["role"] == "system" for one in small) <= 1


def test_without_anything_to_tell_there_is_none() -> None:
    """Wrong: a context has an empty system message."""
    with AgentMemory("memory://", blocks=[], memory_role="leading") as memory:
        assert [one["role"] for one in told(memory)] == ["user"]
