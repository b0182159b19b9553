"""Chat messages of transcripts for hooks: text, tool calls and their results. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from agent_memory.integrations.loose import Json, dated, moment

_TEXTS = ("text", "input_text", "output_text")
_SILENT = ("thinking", "redacted_thinking", "tool_use", "tool_result", "tool_reference")


def text_of(content: Any) -> str:
    """Return the text of a content; other parts are named."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    parts = [
        part.get("text") if part.get("type") in _TEXTS else f"[{part.get('type')}]"
        for part in content
        if isinstance(part, dict) and part.get("type") not in _SILENT
    ]
    return "\n".join(part for part in parts if isinstance(part, str) and part)


def messages(views: Iterable[Mapping[str, Any]], own: str, at: object) -> list[Json]:
    """Return the messages of a line, without empty ones.

    Args:
        views: The line's chat messages.
        own: The line's id; several messages have `own`, `own.1`, ...
        at: The line's time, if it has one.
    """
    said = [one for view in views if (one := _said(view)) is not None]
    return [
        dated({**one, "id": f"{own}.{number}" if number else own}, moment(at))
        for number, one in enumerate(said)
    ]


def _said(view: Mapping[str, Any]) -> Json | None:
    content = view["content"]
    if view["role"] != "tool":
        content = (content or "").strip() or None
        if content is None and "tool_calls" not in view:
            return None
    return {**view, "content": content}
