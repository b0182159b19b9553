"""Lines of Codex's rollouts, as chat messages. Pure.

A rollout is two logs in one: `response_item` is what the model exchanged, and is what is read.
"""

from __future__ import annotations

import re
from typing import Any

from agent_memory.integrations.transcripts.claude_code import call_of, text_of
from agent_memory.integrations.transcripts.own import without_ours

_CALLS = {"function_call": "arguments", "custom_tool_call": "input"}
_RESULTS = ("function_call_output", "custom_tool_call_output")
_SCAFFOLD = re.compile(
    r"\s*(?:<(environment_context|user_instructions|permissions instructions|turn_aborted|skill|"
    r"user_shell_command|subagent_notification)\b.*|# AGENTS\.md instructions for .*)",
    re.DOTALL,
)


def messages(record: dict[str, Any], place: str) -> list[dict[str, Any]]:
    """What one line says: one message or none.

    Left out are what Codex itself writes in the user's name (the environment, AGENTS.md), what it
    and hooks tell as developer, and reasoning. An image is named, not kept.

    Args:
        record: The line.
        place: Names the line: a rollout gives its lines no ids.
    """
    item = record.get("payload")
    if record.get("type") != "response_item" or not isinstance(item, dict):
        return []
    found = _message(item)
    dated = {"created_at": record["timestamp"]} if record.get("timestamp") else {}
    return [{**found, "id": place, **dated}] if found else []


def _message(item: dict[str, Any]) -> dict[str, Any] | None:
    kind = item.get("type")
    if kind in _CALLS:
        call = call_of(item.get("call_id"), item.get("name"), item.get(_CALLS[kind]) or "{}")
        return {"role": "assistant", "content": None, "tool_calls": [call]}
    if kind in _RESULTS:
        output = item.get("output")
        if isinstance(output, dict):
            output = output.get("content")
        text = without_ours(text_of(output))
        return {"role": "tool", "tool_call_id": str(item.get("call_id")), "content": text}
    role = item.get("role")
    if kind != "message" or role not in ("user", "assistant"):
        return None
    text = without_ours(text_of(item.get("content"))).strip()
    if not text or (role == "user" and _SCAFFOLD.fullmatch(text)):
        return None
    return {"role": role, "content": text}
