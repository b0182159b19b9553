"""Messages of LlamaIndex, as `ChatMessage` dumps them: a role, blocks and more. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from agent_memory.core.formats.responses import calls_of

Json = dict[str, Any]

_ROLES = {
    "user": "user", "assistant": "assistant", "chatbot": "assistant", "model": "assistant",
    "system": "system", "developer": "developer", "tool": "tool", "function": "function",
}  # fmt: skip


def to_chat(raw: Mapping[str, Any]) -> list[Json]:
    """The chat message of a message. Thinking has no chat form."""
    role, blocks = _ROLES.get(str(raw.get("role"))), raw.get("blocks")
    if role is None or not isinstance(blocks, list):
        return []
    more = raw.get("additional_kwargs")
    given: Mapping[str, Any] = more if isinstance(more, Mapping) else {}
    parts = [part for block in blocks if isinstance(block, dict) for part in _parts(block)]
    only_text = all(part["type"] == "text" for part in parts)
    content: Any = "\n".join(part["text"] for part in parts) if only_text else parts
    view: Json = {"role": role, "content": content}
    if role == "tool":
        view["tool_call_id"] = given.get("tool_call_id")
    if isinstance(given.get("name"), str):
        view["name"] = given["name"]
    calls = [_call(block) for block in blocks if _is_call(block)]
    calls = calls or [call for call in given.get("tool_calls") or () if isinstance(call, dict)]
    if calls:
        view |= {"content": content or None, "tool_calls": calls}
    return [view]


def from_chat(view: Mapping[str, Any]) -> list[Json]:
    """The message of a chat message."""
    content = view.get("content")
    parts = content if isinstance(content, list) else [{"type": "text", "text": content or ""}]
    blocks = [
        {"block_type": "text", "text": str(part.get("text"))}
        for part in parts
        if isinstance(part, dict) and part.get("text")
    ]
    blocks += [_asked(call) for call in calls_of(view)]
    more = {name: view[name] for name in ("tool_call_id", "name") if view.get(name) is not None}
    return [{"role": view.get("role"), "additional_kwargs": more, "blocks": blocks}]


def _parts(block: Json) -> Iterator[Json]:
    kind = block.get("block_type")
    if kind == "text":
        yield {"type": "text", "text": str(block.get("text") or "")}
    elif kind in ("image", "audio", "video", "document"):
        data = block.get("image") or block.get("audio") or block.get("video") or block.get("data")
        form = block.get(f"{kind}_mimetype") or "application/octet-stream"
        url = str(block.get("url") or f"data:{form};base64,{data}")
        if kind == "image":
            yield {"type": "image_url", "image_url": {"url": url}}
        else:
            yield {"type": "file", "file": {"file_data": url}}


def _is_call(block: object) -> bool:
    return isinstance(block, dict) and block.get("block_type") == "tool_call"


def _call(block: Json) -> Json:
    given = block.get("tool_kwargs")
    arguments = given if isinstance(given, str) else json.dumps(given or {}, ensure_ascii=False)
    function = {"name": block.get("tool_name"), "arguments": arguments}
    return {"id": block.get("tool_call_id"), "type": "function", "function": function}


def _asked(call: Mapping[str, Any]) -> Json:
    function = call.get("function") or {}
    try:
        given = json.loads(function.get("arguments") or "{}")
    except ValueError:
        given = function.get("arguments")
    name = str(function.get("name"))
    kept = {"block_type": "tool_call", "tool_call_id": call.get("id"), "tool_name": name}
    return {**kept, "tool_kwargs": given}
