"""Messages of pydantic-ai, as its adapter dumps them: requests and responses with parts. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from agent_memory.core.formats import neutral
from agent_memory.core.formats.neutral import Json, dicts, dumped

_SHOWN = ("system-prompt", "user-prompt", "tool-return", "retry-prompt", "text", "tool-call")


def recognises(value: Mapping[str, Any]) -> bool:
    return value.get("kind") in ("request", "response") and isinstance(value.get("parts"), list)


def to_chat(raw: Mapping[str, Any]) -> list[Json]:
    """Return a response or a request as chat messages. Thinking is left out."""
    parts = dicts(raw.get("parts"))
    if raw.get("kind") == "response":
        texts = [part for part in parts if part.get("part_kind") == "text" and part.get("content")]
        used = [part for part in parts if part.get("part_kind") == "tool-call"]
        calls = neutral.calls_in(used, "tool_call_id", "tool_name", "args")
        shown = [neutral.text_part(str(part["content"])) for part in texts]
        return neutral.views_of("assistant", shown, calls)
    return [view for part in parts for view in _chat_messages(part)]


def unseen(raw: Mapping[str, Any]) -> list[Any]:
    """Return the provider's details, and parts that are not in chat messages, such as thinking."""
    parts = dicts(raw.get("parts"))
    hidden: list[Any] = [part for part in parts if part.get("part_kind") not in _SHOWN]
    shown = [part for part in parts if part.get("part_kind") in _SHOWN]
    return hidden + [more for part in shown if (more := part.get("provider_details"))]


def from_chat(view: Mapping[str, Any]) -> list[Json]:
    role, content = view.get("role"), view.get("content")
    if role == "assistant":
        parts: list[Json] = []
        if content:
            parts.append({"part_kind": "text", "content": neutral.text_of(content)})
        for call_id, name, args in neutral.parsed_calls(view):
            call_part = {"part_kind": "tool-call", "tool_name": name, "args": args}
            parts.append({**call_part, "tool_call_id": call_id})
        return [{"kind": "response", "parts": parts}] if parts else []
    if role == "tool":
        name = view.get("name") or "tool"
        return_part = {"part_kind": "tool-return", "tool_name": name, "content": content}
        return_part["tool_call_id"] = view.get("tool_call_id")
        return [{"kind": "request", "parts": [return_part]}]
    kind = "system-prompt" if role in ("system", "developer") else "user-prompt"
    return [
        {
            "kind": "request",
            "parts": [{"part_kind": kind, "content": neutral.text_of(content or "")}],
        }
    ]


def _chat_messages(part: Json) -> Iterator[Json]:
    kind, content = part.get("part_kind"), part.get("content")
    if kind == "system-prompt":
        yield {"role": "system", "content": str(content or "")}
    elif kind == "user-prompt":
        shown: Any = str(content or "")
        if isinstance(content, list):
            shown = neutral.joined([part for item in content for part in _parts(item)])
        yield {"role": "user", "content": shown}
    elif kind in ("tool-return", "retry-prompt"):
        text = dumped(content)
        if kind == "retry-prompt" and not part.get("tool_name"):
            yield {"role": "user", "content": text}
        else:
            yield neutral.answer_of(part.get("tool_call_id"), text)


def _parts(item: object) -> Iterator[Json]:
    if isinstance(item, str):
        yield {"type": "text", "text": item}
    elif isinstance(item, dict) and (item.get("url") or item.get("data")):
        form = str(item.get("media_type") or "application/octet-stream")
        kind = "image" if item.get("kind") == "image-url" else form
        url = item.get("url") or neutral.data_url(form, item.get("data"))
        yield neutral.media_part(str(url), kind)
