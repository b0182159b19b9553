"""Messages of Bedrock's Converse API, as Strands keeps them: each block has one key. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from agent_memory.core.formats.responses import calls_of

Json = dict[str, Any]


def to_chat(raw: Mapping[str, Any]) -> list[Json]:
    """The chat messages of a message: results of tools first, each on its own, then what is said.

    A message that was redacted says what stands in its place. Reasoning has no chat form.
    """
    message = raw.get("redact_message") or raw.get("message") or raw
    role, content = (message.get("role"), message.get("content")) if message else (None, None)
    if role not in ("user", "assistant", "system") or not isinstance(content, list):
        return []
    blocks = [block for block in content if isinstance(block, dict)]
    views = [
        {"role": "tool", "tool_call_id": one.get("toolUseId"), "content": _told(one.get("content"))}
        for block in blocks
        if isinstance(one := block.get("toolResult"), dict)
    ]
    parts = [part for block in blocks for part in _parts(block)]
    calls = [_call(block["toolUse"]) for block in blocks if isinstance(block.get("toolUse"), dict)]
    if parts or calls:
        asked = {"tool_calls": calls} if calls else {}
        views.append({"role": role, "content": _joined(parts) or None, **asked})
    return views


def from_chat(view: Mapping[str, Any]) -> list[Json]:
    """The message of a chat message."""
    role, content = view.get("role"), view.get("content")
    said = content if isinstance(content, list) else [{"type": "text", "text": content or ""}]
    texts = [{"text": part["text"]} for part in said if isinstance(part, dict) and part.get("text")]
    if role == "tool":
        result = {"toolUseId": view.get("tool_call_id"), "status": "success", "content": texts}
        return [{"role": "user", "content": [{"toolResult": result}]}]
    uses = [{"toolUse": _use(call)} for call in calls_of(view)]
    return [{"role": role, "content": [*texts, *uses]}] if texts or uses else []


def _parts(block: Json) -> Iterator[Json]:
    if isinstance(block.get("text"), str):
        yield {"type": "text", "text": block["text"]}
    for kind in ("image", "document", "video"):
        if isinstance(block.get(kind), dict):
            yield _file(kind, block[kind])


def _file(kind: str, block: Json) -> Json:
    source = block.get("source") or {}
    data = source.get("bytes")
    if isinstance(data, dict):  # as Strands writes bytes
        data = data.get("data")
    form = (
        f"{'image' if kind == 'image' else 'application'}/{block.get('format') or 'octet-stream'}"
    )
    url = (
        f"data:{form};base64,{data}" if data else str((source.get("location") or {}).get("uri", ""))
    )
    if kind == "image":
        return {"type": "image_url", "image_url": {"url": url}}
    return {"type": "file", "file": {"file_data": url, "filename": str(block.get("name") or kind)}}


def _told(content: object) -> Any:
    """What a tool gave: text, JSON as text, or parts where there are pictures."""
    parts: list[Json] = []
    for block in content if isinstance(content, list) else ():
        if isinstance(block, dict) and "json" in block:
            parts.append({"type": "text", "text": json.dumps(block["json"], ensure_ascii=False)})
        elif isinstance(block, dict):
            parts += _parts(block)
    return _joined(parts)


def _joined(parts: list[Json]) -> Any:
    only_text = all(part["type"] == "text" for part in parts)
    return "\n".join(part["text"] for part in parts) if only_text else parts


def _call(use: Json) -> Json:
    arguments = json.dumps(use.get("input") or {}, ensure_ascii=False)
    function = {"name": use.get("name"), "arguments": arguments}
    return {"id": use.get("toolUseId"), "type": "function", "function": function}


def _use(call: Mapping[str, Any]) -> Json:
    function = call.get("function") or {}
    try:
        given = json.loads(function.get("arguments") or "{}")
    except ValueError:
        given = None
    asked = given if isinstance(given, dict) else {"arguments": function.get("arguments")}
    return {"toolUseId": call.get("id"), "name": function.get("name"), "input": asked}
