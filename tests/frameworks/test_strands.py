"""Strands' sessions over a memory. `make suites` runs Strands' own tests."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from strands.types.exceptions import SessionException
from strands.types.session import Session, SessionAgent, SessionMessage, SessionType

from agent_memory import AgentMemory
from agent_memory.core.formats.converse import from_chat, to_chat
from agent_memory.integrations.strands import AgentMemorySessionRepository


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[AgentMemory]:
    with AgentMemory(store=f"sqlite:///{tmp_path}/m.db", blocks=[]) as opened:
        yield opened


def message(number: int, *content: Any, role: Any = "user") -> SessionMessage:
    return SessionMessage.from_message({"role": role, "content": list(content)}, number)


def begun(memory: AgentMemory, user_id: str = "ana") -> AgentMemorySessionRepository:
    kept = AgentMemorySessionRepository(memory, user_id=user_id)
    kept.create_session(Session("s", SessionType.AGENT))
    kept.create_agent("s", SessionAgent("a", {"n": 1}, {}))
    return kept


def test_messages_are_returned_unchanged(memory: AgentMemory) -> None:
    """Wrong: bytes, calls or redactions are lost, a retry is stored, or a number is reused."""
    kept = begun(memory)
    use = {"toolUse": {"toolUseId": "t", "name": "weather", "input": {"city": "Rome"}}}
    result = {"toolUseId": "t", "status": "success", "content": [{"json": {"sun": True}}]}
    image = {"image": {"format": "png", "source": {"bytes": b"\x00\xff"}}}
    messages = [
        message(0, {"text": "How is Rome?"}, image),
        message(1, {"text": "Let me look."}, use, role="assistant"),
        message(2, {"toolResult": result}),
    ]
    for one in [*messages, messages[-1]]:
        kept.create_message("s", "a", one)
    assert kept.list_messages("s", "a") == messages
    assert kept.list_messages("s", "a", limit=1, offset=1) == messages[1:2]
    assert kept.read_message("s", "a", 1) == messages[1]
    assert kept.read_message("s", "a", 7) is None
    with pytest.raises(SessionException):
        kept.create_message("s", "a", message(0, {"text": "Another."}))
    redacted = message(0, {"text": "How is Rome?"})
    redacted.redact_message = {"role": "user", "content": [{"text": "[removed]"}]}
    kept.update_message("s", "a", redacted)
    assert "Rome?" not in str(memory.search("How is Rome?", user_id="ana"))
    assert [one.message_id for one in kept.list_messages("s", "a")] == [0, 1, 2]
    chat = [view for entry in memory.history("s/a") for view in entry.message.views()]
    assert [view["role"] for view in chat] == ["user", "assistant", "tool"]
    assert chat[1]["tool_calls"][0]["function"]["arguments"] == '{"city": "Rome"}'


def test_a_session_is_deleted_completely(memory: AgentMemory) -> None:
    """Wrong: messages outlive their session, or another agent's are deleted."""
    kept = begun(memory)
    kept.create_message("s", "a", message(0, {"text": "hi"}))
    other = begun(memory, "ben")
    with pytest.raises(SessionException):
        other.create_message("s", "a", message(0, {"text": "mine"}))  # the log belongs to Ana
    kept.delete_session("s")
    assert kept.read_session("s") is None
    assert memory.history("s/a") == []
    with pytest.raises(SessionException):
        kept.list_messages("s", "a")


@pytest.mark.parametrize("role", ["user", "assistant"])
def test_a_chat_message_survives_a_format_round_trip(role: str) -> None:
    """Wrong: another framework's message does not reach Strands."""
    view = {"role": role, "content": "hello"}
    (raw,) = from_chat(view)
    assert to_chat(raw) == [view]
    (result,) = from_chat({"role": "tool", "tool_call_id": "c", "content": "done"})
    assert to_chat(result) == [{"role": "tool", "tool_call_id": "c", "content": "done"}]
    assert to_chat({"role": "user", "content": "text"}) == []
