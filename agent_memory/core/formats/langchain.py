"""Messages of LangChain, as its `message_to_dict` writes them: a type, and its data. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from agent_memory.core.formats.responses import calls_of

Json = dict[str, Any]

_ROLES = {
    "human": "user", "ai": "assistant", "system": "system", "tool": "tool", "function": "function",
    "AIMessageChunk": "assistant", "HumanMessageChunk": "user", "ToolMessageChunk": "tool",
    "SystemMessageChunk": "system",
}  # fmt: skip
_TYPES = {"user": "human", "assistant": "ai", "developer": "system"}


def to_chat(raw: Mapping[str, Any]) -> list[Json]:
    """The chat message of a message; none for what is no part of a chat, such as a removal."""
    kind, data = raw.get("type"), raw.get("data")
    if not isinstance(data, Mapping):
        return []
    role = data.get("role") if kind == "chat" else _ROLES.get(str(kind))
    if not isinstance(role, str):
        return []
    view: Json = {"role": role, "content": _content(data.get("content"))}
    if role == "tool":
        view["tool_call_id"] = data.get("tool_call_id")
    elif data.get("name"):
        view["name"] = data["name"]
    if calls := [_call(call) for call in data.get("tool_calls") or () if isinstance(call, dict)]:
        view |= {"tool_calls": calls, "content": view["content"] or None}
    return [view]


def from_chat(view: Mapping[str, Any]) -> list[Json]:
    """The message of a chat message."""
    role = str(view.get("role"))
    kind = _TYPES.get(role, role)
    data: Json = {"type": kind, "content": view.get("content") or ""}
    for name in ("name", "tool_call_id"):
        if view.get(name) is not None:
            data[name] = view[name]
    if calls := calls_of(view):
        data["tool_calls"] = [_asked(call) for call in calls]
    return [{"type": kind, "data": data}]


def _content(content: object) -> Any:
    """Text, or parts where there are pictures and the like. Reasoning has no chat form."""
    if not isinstance(content, list):
        return content or ""
    parts = [part for block in content for part in _parts(block)]
    only_text = all(part["type"] == "text" for part in parts)
    return "\n".join(part["text"] for part in parts) if only_text else parts


def _parts(block: object) -> Iterator[Json]:
    if isinstance(block, str):
        yield {"type": "text", "text": block}
    if not isinstance(block, dict):
        return
    match block.get("type"):
        case "text":
            yield {"type": "text", "text": str(block.get("text") or "")}
        case "image_url" | "input_audio":
            yield block
        case "image" | "audio" | "video" | "file":
            yield _file(block)


def _file(block: Json) -> Json:
    given = block.get("source")
    source: Json = given if isinstance(given, dict) else block
    data = source.get("base64") or source.get("data")
    kind = source.get("mime_type") or source.get("media_type") or "application/octet-stream"
    url = f"data:{kind};base64,{data}" if data else str(source.get("url") or source.get("id") or "")
    if block["type"] == "image":
        return {"type": "image_url", "image_url": {"url": url}}
    return {"type": "file", "file": {"file_data": url}}


def _call(call: Json) -> Json:
    arguments = json.dumps(call.get("args") or {}, ensure_ascii=False)
    function = {"name": call.get("name"), "arguments": arguments}
    return {"id": call.get("id"), "type": "function", "function": function}


def _asked(call: Mapping[str, Any]) -> Json:
    function = call.get("function") or {}
    try:
        given = json.loads(function.get("arguments") or "{}")
    except ValueError:
        given = None
    args = given if isinstance(given, dict) else {"arguments": function.get("arguments")}
    return {"type": "tool_call", "id": call.get("id"), "name": function.get("name"), "args": args}
