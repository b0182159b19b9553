"""Converts lines of Codex's session files to items of OpenAI's Responses API and chat messages.

A session file contains two logs. Only the log of the exchange with the model is read. Its lines
have the type `response_item`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from agent_memory.core.formats.responses import to_chat
from agent_memory.integrations.loose import Json, mapping
from agent_memory.integrations.transcripts import chat
from agent_memory.integrations.transcripts.own import without_ours_in

ITEM = "response_item"
"""The type of lines with items."""

_CALLS = ("function_call", "custom_tool_call")
_RESULTS = ("function_call_output", "custom_tool_call_output")
_FIRST = ("message", "reasoning", "local_shell_call", "web_search_call", *_CALLS, *_RESULTS)
"""Types of items. The first releases of Codex wrote these items without a wrapper."""

_SCAFFOLD = re.compile(
    r"\s*(?:<(?:environment_context|user_instructions|permissions instructions|turn_aborted|skill|"
    r"user_shell_command|subagent_notification)\b|# AGENTS\.md instructions(?: for |\s*\n))"
)


def item_of(line: Mapping[str, Any]) -> tuple[str, Json]:
    """Return the type of a line, and the line's payload without the output of our hooks."""
    payload = line.get("payload")
    if isinstance(payload, Mapping):
        return str(line.get("type")), without_ours_in(payload)
    if "type" not in line and "id" in line:
        return "session_meta", dict(line)
    if line.get("type") in _FIRST:
        return ITEM, without_ours_in(line)
    return str(line.get("type") or line.get("record_type")), {}


def is_said(item: Mapping[str, Any]) -> bool:
    """Return whether an item is from the user or the model.

    Codex itself writes some messages with the user's role, such as the environment and AGENTS.md.
    Its other text, and the text of hooks, has the role of a developer.
    """
    if item.get("role") == "user":
        return _SCAFFOLD.match(chat.text_of(item.get("content"))) is None
    return item.get("role") not in ("developer", "system")


def messages(line: Mapping[str, Any], place: str) -> list[Json]:
    """Return the messages of a line: one or none.

    Reasoning and text of Codex itself are left out. An image is replaced by its type.
    """
    kind, item = item_of(line)
    if kind != ITEM or item.get("type") not in ("message", *_CALLS, *_RESULTS):
        return []
    if not is_said(item):
        return []
    for key in ("content", "output"):
        if key in item:
            value = item[key]
            item[key] = chat.text_of(mapping(value).get("content") or value)
    return chat.messages(to_chat(item), place, line.get("timestamp"))
