"""Lines of Cursor's agent transcripts, as chat messages. Pure.

They tell neither ids nor times, and no results of tools: a call without its result is left out, and
what is said beside it is kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent_memory.integrations.loose import Json, mapping
from agent_memory.integrations.transcripts import chat
from agent_memory.integrations.transcripts.own import parted, without_ours

_QUERY = ("<user_query>", "</user_query>")


def messages(line: Mapping[str, Any], place: str) -> list[Json]:
    """What one line says: one message or none.

    Args:
        line: The line.
        place: Names the line.
    """
    role = line.get("role")
    if role not in ("user", "assistant"):
        return []
    text = without_ours(chat.text_of(mapping(line.get("message")).get("content")))
    if role == "user":
        text = "\n".join(parted(text, *_QUERY)[1]) or text
    return chat.messages([{"role": role, "content": text}], place, None)
