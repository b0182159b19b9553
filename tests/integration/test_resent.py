"""Naive loops that send the whole context with the answer to `update`."""

import json
from typing import Any

import pytest

from agent_memory import AgentMemory, Trim
from agent_memory.errors import InvalidMessage
from tests.histories import call, result

TURNS = [("Where do I live?", "In Graz."), ("And my dog?", "Rex."), ("What is his name?", "Rex!")]


def log_of(memory: AgentMemory) -> list[tuple[str, Any]]:
    return [(str(e.message.role), e.message.content) for e in memory.history("s", user_id="ana")]


@pytest.mark.parametrize("role", ["system", "user", "leading"])
@pytest.mark.parametrize("rules", [None, "Be brief."])
def test_messages_of_the_context_are_not_stored_again(role: Any, rules: str | None) -> None:
    """Wrong: each turn stores the whole context again, recalls included."""
    with AgentMemory("memory://", memory_role=role) as memory:
        memory.remember("Ana lives in Graz and has a dog, Rex.", user_id="ana")
        first = [{"role": "system", "content": rules}] if rules else []
        memory.update("s", first, user_id="ana")
        for question, answer in TURNS:
            messages = memory.get("s", question, user_id="ana").to_messages()
            answered = [*messages, {"role": "assistant", "content": answer}]
            memory.update("s", answered, user_id="ana")
        stored = log_of(memory)
    expected = [one for q, a in TURNS for one in (("user", q), ("assistant", a))]
    assert [one for one in stored if one[0] != "system"] == expected
    assert [one[1] for one in stored if one[0] == "system"] == ([rules] if rules else [])


def test_a_shortened_question_and_tool_calls_are_stored_in_full() -> None:
    """Wrong: a message that the context shortened is stored shortened."""
    question = "Compare these: " + "many words " * 2000
    with AgentMemory("memory://", max_tokens=1000, overflow=Trim(), blocks=[]) as memory:
        for _ in range(2):
            messages = memory.get("s", question, user_id="ana").to_messages()
            messages += [call(["c1"], "f"), result("c1", "1")]
            memory.update("s", [*messages, {"role": "assistant", "content": "a"}], user_id="ana")
        stored = log_of(memory)
    assert [role for role, _ in stored] == ["user", "assistant", "tool", "assistant"] * 2
    assert stored[0][1] == stored[4][1] == question


def test_recalls_of_another_context_are_refused() -> None:
    """Wrong: another process, or an older context, stores recalls as a system message."""
    with AgentMemory("memory://") as memory:
        memory.remember("Ana lives in Graz.", user_id="ana")
        messages = memory.get("s", "Where do I live?", user_id="ana").to_messages()
        memory.get("s", "Something else about Graz?", user_id="ana")
        sent = json.loads(json.dumps([*messages, {"role": "assistant", "content": "In Graz."}]))
        with pytest.raises(InvalidMessage, match="Pass the new messages alone"):
            memory.update("s", sent, user_id="ana")
        assert log_of(memory) == []


def test_a_repeated_or_popped_message_is_stored_as_new() -> None:
    """Wrong: a turn that repeats an earlier one is taken for a copy of the context, and dropped."""
    turn = [{"role": "user", "content": "More."}, {"role": "assistant", "content": "Here."}]
    with AgentMemory("memory://", blocks=[]) as memory:
        for _ in range(3):
            memory.get("s", user_id="ana")
            memory.update("s", turn, user_id="ana")
        assert len(log_of(memory)) == 6
    user, assistant = {"role": "user", "content": "A"}, {"role": "assistant", "content": "B"}
    with AgentMemory("memory://", blocks=[]) as memory:
        for change in (memory.delete, memory.pop):
            memory.update("s", [user, assistant, {**user, "content": "C"}], user_id="ana")
            sent = memory.get("s", user_id="ana").to_messages()
            change("s")
            before = [content for _, content in log_of(memory)]
            memory.update("s", [*sent, {**assistant, "content": "D"}], user_id="ana")
            assert [content for _, content in log_of(memory)] == [*before, "A", "B", "C", "D"]
            memory.delete("s")
