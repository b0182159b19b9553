"""Items of OpenAI's Responses API, which others speak too. Pure.

A compaction item stands for all before it, for the provider that made it alone: OpenAI's and xAI's
are sealed. What `responses.compact` answers with is kept as one item, which stands for its output.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from agent_memory.core.text import escape

Json = dict[str, Any]

COMPACTED = "response.compaction"
"""The `object` of what `responses.compact` answers with."""

_CHAT_FIELDS = ("name", "tool_call_id")
_CHAT_ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})
_APPROVALS = {"mcp_approval_request": "id", "mcp_approval_response": "approval_request_id"}
_TEXTS = {"input_text": "text", "output_text": "text", "summary_text": "text", "refusal": "refusal"}


def to_chat(raw: Mapping[str, Any]) -> list[Json]:
    """The chat messages of an item; none for reasoning, and whatever else no chat could show."""
    match raw.get("type"):
        case "function_call" | "custom_tool_call" as kind:
            given = raw.get("arguments" if kind == "function_call" else "input", "")
            function = {"name": raw.get("name"), "arguments": given}
            call = {"id": raw.get("call_id"), "type": "function", "function": function}
            return [{"role": "assistant", "content": None, "tool_calls": [call]}]
        case "function_call_output" | "custom_tool_call_output":
            output = raw.get("output", "")
            text = output if isinstance(output, str) else json.dumps(output, ensure_ascii=False)
            return [{"role": "tool", "tool_call_id": raw.get("call_id"), "content": text}]
        case "compaction":
            text = "\n".join(_texts(raw.get("content"))) or "\n".join(_texts(raw.get("summary")))
            return [{"role": "assistant", "content": summary_element(text)}] if text else []
    view = said(raw)
    return [view] if view is not None else []


def said(raw: Mapping[str, Any]) -> Json | None:
    """The chat message of any item that has a chat role and content of its own."""
    role, content = raw.get("role"), raw.get("content")
    if not isinstance(role, str) or role not in _CHAT_ROLES or not isinstance(content, str | list):
        return None
    view: Json = {key: raw[key] for key in _CHAT_FIELDS if isinstance(raw.get(key), str)}
    shown = [_chat_part(part) for part in content] if isinstance(content, list) else content
    return {"role": role, "content": shown, **view}


def from_chat(view: Mapping[str, Any]) -> list[Json]:
    """The items of a chat message."""
    role, content = view.get("role"), view.get("content")
    if role in ("tool", "function"):
        called = view.get("tool_call_id" if role == "tool" else "name")
        text = content if isinstance(content, str) else "\n".join(_texts(content))
        return [{"type": "function_call_output", "call_id": called, "output": text}]
    items: list[Json] = []
    if content:
        kind = "output_text" if role == "assistant" else "input_text"
        parts = [content] if isinstance(content, str) else content
        items.append({"role": role, "content": [_own_part(part, kind) for part in parts]})
    for call in calls_of(view):
        asked = call.get("function") or {}
        name, arguments = asked.get("name"), asked.get("arguments") or "{}"
        call = {"type": "function_call", "call_id": call.get("id"), "name": name}
        items.append({**call, "arguments": arguments})
    return items


def items(raw: Mapping[str, Any]) -> list[Any]:
    """What an item is sent back as."""
    output = raw.get("output")
    return output if raw.get("object") == COMPACTED and isinstance(output, list) else [raw]


def compacts(raw: Mapping[str, Any]) -> bool:
    """Whether an item stands for all before it."""
    return any(
        one.get("type") == "compaction" and bool(one.get("encrypted_content"))
        for one in items(raw)
        if isinstance(one, Mapping)
    )


def pair(raw: Mapping[str, Any]) -> str | None:
    """What a call and its output are known by: a screen's, a shell's, a request for approval."""
    kind, called = str(raw.get("type")), raw.get("call_id")
    if kind in _APPROVALS:
        kind, called = "approval", raw.get(_APPROVALS[kind])
    name = kind.removesuffix("_output").removesuffix("_call")
    return f"{name} {called}" if isinstance(called, str) else None


def calls_of(view: Mapping[str, Any]) -> list[Json]:
    """The calls of a chat message, an old function call among them, each id once."""
    calls = [*(view.get("tool_calls") or ())]
    if isinstance(function := view.get("function_call"), Mapping):
        calls.append({"id": function.get("name"), "function": function})
    return list({call.get("id"): call for call in reversed(calls)}.values())[::-1]


def summary_element(text: str) -> str:
    """What a readable compaction says, marked as a summary."""
    return f"<summary>\n{escape(text)}\n</summary>"


def _texts(parts: object) -> Iterator[str]:
    for part in [parts] if isinstance(parts, str) else parts if isinstance(parts, list) else []:
        text = part.get("text") if isinstance(part, Mapping) else part
        if isinstance(text, str) and text:
            yield text


def _chat_part(part: object) -> object:
    if not isinstance(part, dict):
        return part
    match part.get("type"):
        case "input_text" | "output_text" | "summary_text" | "refusal" as kind:
            return {"type": "text", "text": part.get(_TEXTS[kind], "")}
        case "input_image":
            image = {"url": part.get("image_url", "")}
            detail = {"detail": part["detail"]} if part.get("detail") else {}
            return {"type": "image_url", "image_url": image | detail}
        case "input_file":
            keys = ("file_id", "filename", "file_data")
            return {"type": "file", "file": {key: part[key] for key in keys if part.get(key)}}
        case _:
            return part


def _own_part(part: object, kind: str) -> object:
    if isinstance(part, str):
        return {"type": kind, "text": part}
    if not isinstance(part, dict):
        return part
    match part.get("type"):
        case "text":
            return {"type": kind, "text": part.get("text", "")}
        case "image_url":
            image = part.get("image_url")
            url = image if isinstance(image, dict) else {"url": image}
            detail = {"detail": url["detail"]} if url.get("detail") else {}
            return {"type": "input_image", "image_url": url.get("url"), **detail}
        case "file":
            return {"type": "input_file", **(part.get("file") or {})}
        case _:
            return part
