"""Chat views of provider-native items, so that a message kept verbatim can still be shown."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_CHAT_FIELDS = ("name", "tool_call_id")
_CHAT_ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})


def chat_view(raw: Mapping[str, Any]) -> dict[str, Any] | None:
    """An OpenAI chat dict for a raw item, or None where it has nothing a chat could show.

    Knows the items of OpenAI's Responses API (messages, function calls and their outputs), and any
    item that has a chat role and content of its own. Reasoning and encrypted items have no chat
    form.
    """
    kind = raw.get("type")
    if kind == "function_call":
        call = {
            "id": raw.get("call_id"),
            "type": "function",
            "function": {"name": raw.get("name"), "arguments": raw.get("arguments", "")},
        }
        return {"role": "assistant", "content": None, "tool_calls": [call]}
    if kind == "function_call_output":
        output = raw.get("output", "")
        text = output if isinstance(output, str) else json.dumps(output, ensure_ascii=False)
        return {"role": "tool", "tool_call_id": raw.get("call_id"), "content": text}
    role = raw.get("role")
    content = raw.get("content")
    if not isinstance(role, str) or role not in _CHAT_ROLES or not isinstance(content, str | list):
        return None
    view: dict[str, Any] = {key: raw[key] for key in _CHAT_FIELDS if isinstance(raw.get(key), str)}
    shown = [_part(part) for part in content] if isinstance(content, list) else content
    return {"role": role, "content": shown, **view}


def _part(part: object) -> object:
    if not isinstance(part, dict):
        return part
    match part.get("type"):
        case "input_text" | "output_text":
            return {"type": "text", "text": part.get("text", "")}
        case "refusal":
            return {"type": "text", "text": part.get("refusal", "")}
        case "input_image":
            image = {"url": part.get("image_url", "")}
            detail = {"detail": part["detail"]} if part.get("detail") else {}
            return {"type": "image_url", "image_url": image | detail}
        case "input_file":
            keys = ("file_id", "filename", "file_data")
            return {"type": "file", "file": {key: part[key] for key in keys if part.get(key)}}
        case _:
            return part
