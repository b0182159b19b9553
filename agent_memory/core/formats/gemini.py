"""Events of Google's ADK, whose content is Gemini's: a role and parts. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from agent_memory.core.formats.responses import calls_of

Json = dict[str, Any]

_ROLES = {"user": "user", "model": "assistant", "function": "user", "system": "system"}


def to_chat(raw: Mapping[str, Any]) -> list[Json]:
    """The chat messages of an event: results of functions first, each alone, then what is said.

    Thoughts have no chat form, and an event without content none either.
    """
    content = raw.get("content")
    if not isinstance(content, Mapping) or not isinstance(content.get("parts"), list):
        return []
    author = "user" if raw.get("author") == "user" else "model"
    role = _ROLES.get(str(content.get("role") or author), "user")
    parts = [
        part for part in content["parts"] if isinstance(part, dict) and not part.get("thought")
    ]
    views = [
        {
            "role": "tool",
            "tool_call_id": given.get("id") or given.get("name"),
            "content": json.dumps(given.get("response"), ensure_ascii=False),
        }
        for part in parts
        if isinstance(given := part.get("function_response"), dict)
    ]
    said = [one for part in parts for one in _said(part)]
    calls = [_call(part["function_call"]) for part in parts if part.get("function_call")]
    if said or calls:
        only_text = all(one["type"] == "text" for one in said)
        told: Any = "\n".join(one["text"] for one in said) if only_text else said
        asked = {"tool_calls": calls} if calls else {}
        views.append({"role": role, "content": told or None, **asked})
    return views


def from_chat(view: Mapping[str, Any]) -> list[Json]:
    """The content of a chat message."""
    role, content = view.get("role"), view.get("content")
    if role == "tool":
        name = view.get("name") or view.get("tool_call_id")
        answer = {"id": view.get("tool_call_id"), "name": name, "response": {"result": content}}
        return [{"role": "user", "parts": [{"function_response": answer}]}]
    said = content if isinstance(content, list) else [{"type": "text", "text": content or ""}]
    texts = [{"text": part["text"]} for part in said if isinstance(part, dict) and part.get("text")]
    calls = [{"function_call": _asked(call)} for call in calls_of(view)]
    kind = "model" if role == "assistant" else "user"
    return [{"role": kind, "parts": [*texts, *calls]}] if texts or calls else []


def _said(part: Json) -> Iterator[Json]:
    if isinstance(part.get("text"), str) and part["text"]:
        yield {"type": "text", "text": part["text"]}
    for name in ("inline_data", "file_data"):
        if isinstance(blob := part.get(name), dict):
            kind = str(blob.get("mime_type") or "application/octet-stream")
            url = str(blob.get("file_uri") or f"data:{kind};base64,{blob.get('data')}")
            if kind.startswith("image/"):
                yield {"type": "image_url", "image_url": {"url": url}}
            else:
                yield {"type": "file", "file": {"file_data": url}}


def _call(call: Json) -> Json:
    arguments = json.dumps(call.get("args") or {}, ensure_ascii=False)
    function = {"name": call.get("name"), "arguments": arguments}
    return {"id": call.get("id") or call.get("name"), "type": "function", "function": function}


def _asked(call: Mapping[str, Any]) -> Json:
    function = call.get("function") or {}
    try:
        given = json.loads(function.get("arguments") or "{}")
    except ValueError:
        given = None
    args = given if isinstance(given, dict) else {"arguments": function.get("arguments")}
    return {"id": call.get("id"), "name": function.get("name"), "args": args}
