"""Lines of Cursor's agent transcripts, as chat messages. Pure.

They tell neither ids nor times, and no results of tools: a call without its result is left out, and
what is said beside it is kept.
"""

from __future__ import annotations

from typing import Any

from agent_memory.integrations.transcripts.claude_code import text_of
from agent_memory.integrations.transcripts.own import parted, without_ours

_QUERY = ("<user_query>", "</user_query>")


def messages(record: dict[str, Any], place: str) -> list[dict[str, Any]]:
    """What one line says: one message or none.

    Args:
        record: The line.
        place: Names the line.
    """
    role, said = record.get("role"), record.get("message")
    if role not in ("user", "assistant") or not isinstance(said, dict):
        return []
    text = without_ours(text_of(said.get("content")))
    if role == "user":
        text = "\n".join(parted(text, *_QUERY)[1]) or text
    text = text.strip()
    return [{"role": role, "content": text, "id": place}] if text else []
