"""Messages of pydantic-ai, as its adapter dumps them: requests and responses of parts. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from agent_memory.core.formats.responses import calls_of

Json = dict[str, Any]


def to_chat(raw: Mapping[str, Any]) -> list[Json]:
    """The chat messages of a request (what the system, the user and tools said) or a response.

    Thinking has no chat form.
    """
    parts = [one for one in raw.get("parts") or () if isinstance(one, dict)]
    if raw.get("kind") == "response":
        said = [p for p in parts if p.get("part_kind") == "text" and p.get("content")]
        calls = [_call(p) for p in parts if p.get("part_kind") == "tool-call"]
        text = "\n".join(str(part["content"]) for part in said)
        if not (text or calls):
            return []
        view: Json = {"role": "assistant", "content": text or None}
        return [{**view, "tool_calls": calls} if calls else view]
    return [view for part in parts for view in _asked(part)]


def from_chat(view: Mapping[str, Any]) -> list[Json]:
    """The message of a chat message."""
    role, content = view.get("role"), view.get("content")
    if role == "assistant":
        parts: list[Json] = [{"part_kind": "text", "content": _text(content)}] if content else []
        for call in calls_of(view):
            asked = call.get("function") or {}
            used = {"part_kind": "tool-call", "tool_name": asked.get("name")}
            parts.append({**used, "args": asked.get("arguments"), "tool_call_id": call.get("id")})
        return [{"kind": "response", "parts": parts}] if parts else []
    if role == "tool":
        name = view.get("name") or "tool"
        told = {"part_kind": "tool-return", "tool_name": name, "content": content}
        return [{"kind": "request", "parts": [{**told, "tool_call_id": view.get("tool_call_id")}]}]
    kind = "system-prompt" if role in ("system", "developer") else "user-prompt"
    return [{"kind": "request", "parts": [{"part_kind": kind, "content": _text(content)}]}]


def _asked(part: Json) -> Iterator[Json]:
    kind, content = part.get("part_kind"), part.get("content")
    if kind == "system-prompt":
        yield {"role": "system", "content": str(content or "")}
    elif kind == "user-prompt":
        yield {"role": "user", "content": _user(content)}
    elif kind in ("tool-return", "retry-prompt"):
        told = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
        if kind == "retry-prompt" and not part.get("tool_name"):
            yield {"role": "user", "content": told}
        else:
            yield {"role": "tool", "tool_call_id": part.get("tool_call_id"), "content": told}


def _user(content: object) -> Any:
    if not isinstance(content, list):
        return str(content or "")
    parts = [part for one in content for part in _parts(one)]
    only_text = all(part["type"] == "text" for part in parts)
    return "\n".join(part["text"] for part in parts) if only_text else parts


def _parts(one: object) -> Iterator[Json]:
    if isinstance(one, str):
        yield {"type": "text", "text": one}
    elif isinstance(one, dict) and (one.get("url") or one.get("data")):
        form = str(one.get("media_type") or "application/octet-stream")
        url = str(one.get("url") or f"data:{form};base64,{one.get('data')}")
        if form.startswith("image/") or one.get("kind") == "image-url":
            yield {"type": "image_url", "image_url": {"url": url}}
        else:
            yield {"type": "file", "file": {"file_data": url}}


def _text(content: object) -> str:
    if not isinstance(content, list):
        return str(content or "")
    texts = [one.get("text") for one in content if isinstance(one, dict) and one.get("text")]
    return "\n".join(map(str, texts))


def _call(part: Json) -> Json:
    given = part.get("args")
    arguments = given if isinstance(given, str) else json.dumps(given or {}, ensure_ascii=False)
    function = {"name": part.get("tool_name"), "arguments": arguments}
    return {"id": part.get("tool_call_id"), "type": "function", "function": function}
