"""Messages of LlamaIndex, as `ChatMessage` dumps them: a role, blocks and extra fields. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from agent_memory.core.formats import neutral
from agent_memory.core.formats.neutral import Json, dicts, mapping

_ROLES = {
    "user": "user", "assistant": "assistant", "chatbot": "assistant", "model": "assistant",
    "system": "system", "developer": "developer", "tool": "tool", "function": "function",
}  # fmt: skip

_SHOWN = ("text", "image", "audio", "video", "document", "tool_call")
_FIELDS = ("tool_calls", "tool_call_id", "name")


def recognises(value: Mapping[str, Any]) -> bool:
    return isinstance(value.get("blocks"), list) and "additional_kwargs" in value


def to_chat(raw: Mapping[str, Any]) -> list[Json]:
    role, blocks = _ROLES.get(str(raw.get("role"))), raw.get("blocks")
    if role is None or not isinstance(blocks, list):
        return []
    extra = mapping(raw.get("additional_kwargs"))
    content = neutral.joined([part for block in dicts(blocks) for part in _parts(block)])
    view: Json = {"role": role, "content": content}
    if role == "tool":
        view["tool_call_id"] = extra.get("tool_call_id")
    if isinstance(extra.get("name"), str):
        view["name"] = extra["name"]
    used = [block for block in dicts(blocks) if block.get("block_type") == "tool_call"]
    calls = neutral.calls_in(used, "tool_call_id", "tool_name", "tool_kwargs")
    calls = calls or dicts(extra.get("tool_calls"))
    if calls:
        view |= {"content": content or None, "tool_calls": calls}
    return [view]


def unseen(raw: Mapping[str, Any]) -> list[Any]:
    blocks = [block for block in dicts(raw.get("blocks")) if block.get("block_type") not in _SHOWN]
    more = mapping(raw.get("additional_kwargs"))
    fields = {key: value for key, value in more.items() if value and key not in _FIELDS}
    return [*blocks, fields] if fields else blocks


def from_chat(view: Mapping[str, Any]) -> list[Json]:
    marks = map(neutral.mark_of, neutral.parts_of(view.get("content")))
    blocks: list[Json] = [{"block_type": "text", "text": mark} for mark in marks]
    for call_id, name, arguments in neutral.parsed_calls(view):
        called = {"block_type": "tool_call", "tool_call_id": call_id, "tool_name": name}
        blocks.append({**called, "tool_kwargs": arguments})
    more = {name: view[name] for name in ("tool_call_id", "name") if view.get(name) is not None}
    return [{"role": view.get("role"), "additional_kwargs": more, "blocks": blocks}]


def _parts(block: Json) -> Iterator[Json]:
    kind = block.get("block_type")
    if kind == "text":
        yield {"type": "text", "text": str(block.get("text") or "")}
    elif kind in ("image", "audio", "video", "document"):
        data = block.get("image") or block.get("audio") or block.get("video") or block.get("data")
        form = block.get(f"{kind}_mimetype") or "application/octet-stream"
        yield neutral.media_part(str(block.get("url") or neutral.data_url(form, data)), str(kind))
