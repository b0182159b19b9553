"""What is left of a message whose author is deleted. Pure."""

from __future__ import annotations

from typing import Any

from agent_memory.core.messages import Message

DELETED = "[deleted]"
"""Stands where its text was."""

EMPTY_SYSTEM = Message(role="system", content=DELETED)
"""Stands for a system message that is kept elsewhere, until nothing refers to it."""

_FORMAT = "deleted"


def redacted_message(message: Message) -> Message:
    """A message without what it says: its role and the ids of its calls stay, so that turns stay
    whole. A system message stands nowhere any more."""
    view = None if message.is_system else message.to_openai()
    if view is None:
        return Message(raw={}, format=_FORMAT, created_at=message.created_at)
    kept: dict[str, Any] = {"role": view["role"], "content": DELETED}
    calls = view.get("tool_calls")
    if calls:
        kept["tool_calls"] = [_redacted_call(call) for call in calls]
    if view.get("function_call"):
        kept["function_call"] = _redacted_function(view["function_call"])
    if view["role"] in ("tool", "function"):  # what says which call it answers
        kept |= {key: view[key] for key in ("tool_call_id", "name") if view.get(key)}
    return Message(**kept, created_at=message.created_at)


def _redacted_call(call: dict[str, Any]) -> dict[str, Any]:
    function = _redacted_function(call.get("function") or {})
    return {"id": call.get("id"), "type": "function", "function": function}


def _redacted_function(function: dict[str, Any]) -> dict[str, Any]:
    return {"name": function.get("name"), "arguments": "{}"}


def stands_nowhere(message: Message) -> bool:
    """Whether nothing is left of a message but its place in the log."""
    return message.format == _FORMAT
