"""Messages of transcripts as hooks store them: text, calls of tools and their results. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from agent_memory.integrations.loose import Json, dated, moment

_TEXTS = ("text", "input_text", "output_text")
_SILENT = ("thinking", "redacted_thinking", "tool_use", "tool_result", "tool_reference")


def text_of(content: Any) -> str:
    """The text of a content; what is no text is named."""
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
    """What a line says, without what says nothing.

    Args:
        views: Its chat messages.
        own: Names the line; several messages of one are `own`, `own.1`, ...
        at: When it was said, as far as the line tells.
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
