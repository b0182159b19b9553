"""Messages of Microsoft's Agent Framework, as the framework's `to_dict` writes them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from agent_memory.core.formats import neutral
from agent_memory.core.formats.neutral import Json, dicts, dumped, says

_ROLES = ("user", "assistant", "system", "developer")
# Usage is not shown, but it does not reach a model either.
_SHOWN = ("text", "data", "uri", "function_call", "function_result", "usage")


def to_chat(raw: Mapping[str, Any]) -> list[Json]:
    contents = raw.get("contents")
    if not isinstance(contents, list):
        return []
    blocks = [block for block in contents if isinstance(block, dict)]
    views = [
        neutral.answer_of(block.get("call_id"), dumped(block.get("result")))
        for block in blocks
        if block.get("type") == "function_result"
    ]
    parts = [part for block in blocks for part in _parts(block)]
    used = [block for block in blocks if block.get("type") == "function_call"]
    calls = neutral.calls_in(used, "call_id", "name", "arguments")
    role = raw.get("role")
    messages = neutral.views_of(role, parts, calls) if role in _ROLES else []
    if messages and isinstance(raw.get("author_name"), str) and role != "system":
        messages[0]["name"] = raw["author_name"]
    return views + messages


def unseen(raw: Mapping[str, Any]) -> list[Any]:
    return [block for block in dicts(raw.get("contents")) if block.get("type") not in _SHOWN]


def from_chat(view: Mapping[str, Any]) -> list[Json]:
    role, content = view.get("role"), view.get("content")
    if role == "tool":
        result = {"type": "function_result", "call_id": view.get("tool_call_id"), "result": content}
        return [{"type": "message", "role": "tool", "contents": [result]}]
    marks = map(neutral.mark_of, neutral.parts_of(content))
    contents: list[Json] = [*map(neutral.text_part, marks)]
    for call_id, name, arguments in neutral.parsed_calls(view):
        used = {"type": "function_call", "call_id": call_id, "name": name}
        contents.append({**used, "arguments": dumped(arguments)})
    message: Json = {"type": "message", "role": role, "contents": contents}
    if view.get("name"):
        message["author_name"] = view["name"]
    return [message] if contents else []


def _parts(block: Json) -> Iterator[Json]:
    if block.get("type") == "text" and says(block.get("text")):
        yield neutral.text_part(block["text"])
    elif block.get("type") in ("data", "uri") and block.get("uri"):
        yield neutral.media_part(str(block["uri"]), str(block.get("media_type")))
