"""Any conversation in any provider's format: pairs, budget, and nothing of another provider's."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory import AgentMemory, StaticMemory
from agent_memory.core.formats.registry import format_of
from agent_memory.testing.histories import histories, unpaired

FORMATS = ("openai.responses", "xai.responses", "anthropic.messages")


@pytest.mark.parametrize("name", FORMATS)
@given(
    messages=histories(),
    max_tokens=st.sampled_from([100, 300, 1_000, 8_000]),
    role=st.sampled_from(["system", "user"]),
    question=st.sampled_from([None, "When does it open?"]),
)
def test_any_conversation_in_a_providers_format(
    name: str, messages: list[Any], max_tokens: int, role: Any, question: str | None
) -> None:
    """Wrong: a budget is passed, a call stands without its result, an item is changed or sent to
    another provider than its own, or the log is another one afterwards."""
    facts = [StaticMemory(facts=["It opens at nine."])]
    with AgentMemory(
        store="memory://", blocks=facts, max_tokens=max_tokens, memory_role=role
    ) as memory:
        memory.update("s", messages)
        context = memory.get("s", question, format=name)
        assert context.tokens <= max_tokens
        items = context.to_messages()
        assert [entry.message.to_dict() for entry in memory.history("s")] == messages
        assert memory.get("s", question).to_messages() == memory.get("s", question).to_messages()
    form = format_of(name)
    assert unpaired([view for item in items for view in form.to_chat(item)]) == []
    others = {"openai", "xai", "anthropic"} - {name.partition(".")[0]}
    assert not [other for other in others if f"sealed by {other}" in str(items)]
    own = [one["raw"] for one in messages if one.get("format") == name]
    given_ = [item for raw in own for item in form.items(raw)]
    compact = [place for place, item in enumerate(items) if form.compacts(item)]
    for place in compact:
        assert items[place] in given_
    assert len(compact) <= sum(form.compacts(raw) for raw in own)
    for item in items:
        if item.get("type") == "reasoning":
            assert item in own
    if question is not None and question not in str(messages):
        assert question in str(items[-1])
