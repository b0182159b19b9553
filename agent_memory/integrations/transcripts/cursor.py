"""Converts lines of Cursor's agent transcripts to chat messages.

The lines have no ids, times or tool results. Tool calls are left out, because their results are
missing. Text next to a call is stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent_memory.integrations.loose import Json, mapping
from agent_memory.integrations.transcripts import chat
from agent_memory.integrations.transcripts.own import parted, without_ours

_QUERY = ("<user_query>", "</user_query>")


def messages(line: Mapping[str, Any], place: str) -> list[Json]:
    """Return the messages of a line: one or none."""
    role = line.get("role")
    if role not in ("user", "assistant"):
        return []
    text = without_ours(chat.text_of(mapping(line.get("message")).get("content")))
    if role == "user":
        text = "\n".join(parted(text, *_QUERY)[1]) or text
    return chat.messages([{"role": role, "content": text}], place, None)
