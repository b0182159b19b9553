"""Messages of Microsoft's Agent Framework, as `Message.to_dict` writes them. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from agent_memory.core.formats.responses import calls_of

Json = dict[str, Any]

_ROLES = ("user", "assistant", "system", "developer")


def to_chat(raw: Mapping[str, Any]) -> list[Json]:
    """The chat messages of a message: results of functions first, each on its own, then what is
    said. Reasoning has no chat form.
    """
    contents = raw.get("contents")
    if not isinstance(contents, list):
        return []
    blocks = [one for one in contents if isinstance(one, dict)]
    views = [
        {"role": "tool", "tool_call_id": one.get("call_id"), "content": _told(one.get("result"))}
        for one in blocks
        if one.get("type") == "function_result"
    ]
    parts = [part for one in blocks for part in _parts(one)]
    calls = [_call(one) for one in blocks if one.get("type") == "function_call"]
    role = raw.get("role")
    if role in _ROLES and (parts or calls):
        only_text = all(part["type"] == "text" for part in parts)
        said: Any = "\n".join(part["text"] for part in parts) if only_text else parts
        view: Json = {"role": role, "content": said or None}
        if isinstance(raw.get("author_name"), str) and role != "system":
            view["name"] = raw["author_name"]
        views.append({**view, "tool_calls": calls} if calls else view)
    return views


def from_chat(view: Mapping[str, Any]) -> list[Json]:
    """The message of a chat message."""
    role, content = view.get("role"), view.get("content")
    if role == "tool":
        result = {"type": "function_result", "call_id": view.get("tool_call_id"), "result": content}
        return [{"type": "message", "role": "tool", "contents": [result]}]
    parts = content if isinstance(content, list) else [{"type": "text", "text": content or ""}]
    contents: list[Json] = [
        {"type": "text", "text": part["text"]}
        for part in parts
        if isinstance(part, dict) and part.get("text")
    ]
    for call in calls_of(view):
        asked = call.get("function") or {}
        name, given = asked.get("name"), asked.get("arguments") or "{}"
        used = {"type": "function_call", "call_id": call.get("id"), "name": name}
        contents.append({**used, "arguments": given})
    message: Json = {"type": "message", "role": role, "contents": contents}
    if view.get("name"):
        message["author_name"] = view["name"]
    return [message] if contents else []


def _parts(block: Json) -> Iterator[Json]:
    if block.get("type") == "text":
        yield {"type": "text", "text": str(block.get("text") or "")}
    elif block.get("type") in ("data", "uri") and block.get("uri"):
        if str(block.get("media_type") or "").startswith("image/"):
            yield {"type": "image_url", "image_url": {"url": block["uri"]}}
        else:
            yield {"type": "file", "file": {"file_data": block["uri"]}}


def _told(result: object) -> str:
    if isinstance(result, str):
        return result
    return json.dumps(result, ensure_ascii=False, default=str)


def _call(block: Json) -> Json:
    given = block.get("arguments")
    arguments = given if isinstance(given, str) else json.dumps(given or {}, ensure_ascii=False)
    function = {"name": block.get("name"), "arguments": arguments}
    return {"id": block.get("call_id"), "type": "function", "function": function}
