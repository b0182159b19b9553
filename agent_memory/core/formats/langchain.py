"""Messages of LangChain, as `model_dump` returns them: a type, content and calls. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from agent_memory.core.formats import neutral
from agent_memory.core.formats.chat import valid_name
from agent_memory.core.formats.neutral import Json, dicts, mapping, role_in, says

_ROLES = {
    "human": "user", "ai": "assistant", "system": "system", "tool": "tool", "function": "function",
    "AIMessageChunk": "assistant", "HumanMessageChunk": "user", "ToolMessageChunk": "tool",
    "SystemMessageChunk": "system",
}  # fmt: skip
_MEDIA = ("image", "audio", "video", "file")
_SHOWN = ("text", "image_url", "input_audio", *_MEDIA, "tool_use", "tool_call", "function_call")
_CALLS = ("tool_calls", "function_call")
_TYPES = {"user": "human", "assistant": "ai", "developer": "system"}


def recognises(value: Mapping[str, Any]) -> bool:
    """Return whether a value is a message of LangChain.

    The fields may stand in a field `data`, and a `role` may stand in place of the `type`.
    """
    kind = value.get("type")
    if kind is None and isinstance(value.get("role"), str):
        return role_in(value["role"]) in ("user", "assistant", "tool") and _has_own(value)
    is_langchain = kind in _ROLES or (kind == "chat" and "data" in value)
    return is_langchain and ("content" in value or "content" in mapping(value.get("data")))


def to_message(value: Mapping[str, Any]) -> Json:
    data = value.get("data")
    if isinstance(data, Mapping):
        return {**data, "type": value.get("type")}
    if value.get("type") is not None:
        return dict(value)
    role = role_in(value["role"])
    kind = _TYPES.get(role, role)
    rest = {key: field for key, field in value.items() if key not in ("type", "role")}
    return {"type": kind, "content": "", **rest}


def to_chat(raw: Mapping[str, Any]) -> list[Json]:
    """Return the chat form of a message in a list. Empty without a chat form, as for a removal."""
    kind = raw.get("type")
    role = raw.get("role") if kind == "chat" else _ROLES.get(str(kind))
    if not isinstance(role, str):
        return []
    content = raw.get("content")
    if isinstance(content, list):
        content = neutral.joined([part for block in content for part in _parts(block)])
    elif not says(content):
        content = ""
    used = dicts(raw.get("tool_calls")) or dicts(raw.get("invalid_tool_calls"))
    calls = neutral.calls_in(used, "id", "name", "args")
    view: Json = {"role": role, "content": content}
    if role == "tool":
        view["tool_call_id"] = raw.get("tool_call_id")
    elif not (calls or content):
        return []
    if isinstance(raw.get("name"), str) and raw["name"]:
        view["name"] = raw["name"]
    if calls:
        view |= {"content": content or None, "tool_calls": calls}
    return [view]


def unseen(raw: Mapping[str, Any]) -> list[Any]:
    blocks = [block for block in dicts(raw.get("content")) if block.get("type") not in _SHOWN]
    return blocks + neutral.others(raw.get("additional_kwargs"), _CALLS)


def from_chat(view: Mapping[str, Any]) -> list[Json]:
    role, content = str(view.get("role")), view.get("content")
    kind = _TYPES.get(role, role)
    if isinstance(content, list):
        content = (
            list(neutral.parts_of(content))
            if kind in ("human", "ai", "tool")
            else neutral.text_of(content)
        )
    calls = neutral.parsed_calls(view)
    if not (content or calls or kind == "tool"):
        return []
    data: Json = {"type": kind, "content": content or ""}
    for name in ("name", "tool_call_id"):
        if view.get(name) is not None:
            data[name] = view[name]
    # LangChain sends names to OpenAI unchanged
    if role == "user" and isinstance(view.get("name"), str):
        data["name"] = valid_name(view["name"])
    if calls:
        data["tool_calls"] = [
            {"type": "tool_call", "id": call_id, "name": name, "args": args}
            for call_id, name, args in calls
        ]
    return [data]


def items(raw: Mapping[str, Any]) -> list[Json]:
    """Return a message without empty texts, or nothing if it is empty. Chunks become messages."""
    if not to_chat(raw):
        return []
    message, kind, content = dict(raw), str(raw.get("type")), raw.get("content")
    if kind.endswith("MessageChunk"):
        message["type"] = _TYPES.get(_ROLES[kind], _ROLES[kind])
    if isinstance(content, list):
        message["content"] = [part for part in content if not neutral.is_blank(mapping(part))] or ""
    return [message]


def _has_own(value: Mapping[str, Any]) -> bool:
    calls = dicts(value.get("tool_calls"))
    if any("args" in call and "name" in call and "function" not in call for call in calls):
        return True
    return any(map(_is_own_block, dicts(value.get("content"))))


def _is_own_block(block: Json) -> bool:
    if block.get("type") not in _MEDIA or block.keys() & {"file", "source", "mediaType"}:
        return False
    return bool(block.keys() & {"base64", "url", "source_type"})


def _parts(block: object) -> Iterator[Json]:
    if isinstance(block, str) and says(block):
        yield neutral.text_part(block)
    if not isinstance(block, dict):
        return
    match block.get("type"):
        case "text":
            if says(block.get("text")):
                yield neutral.text_part(block["text"])
        case "image_url" | "input_audio":
            yield block
        case "file" if isinstance(block.get("file"), dict):
            yield block
        case str(kind) if kind in _MEDIA:
            yield _file(block)


def _file(block: Json) -> Json:
    inner = block.get("source")
    source: Json = inner if isinstance(inner, dict) else block
    data = source.get("base64") or source.get("data")
    kind = source.get("mime_type") or source.get("media_type")
    url = neutral.data_url(kind, data) if data else str(source.get("url") or source.get("id") or "")
    return neutral.media_part(url, block["type"])
