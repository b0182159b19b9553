"""Messages of Haystack, as `ChatMessage.to_dict` writes them: parts with one key each. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from agent_memory.core.formats import neutral
from agent_memory.core.formats.neutral import Json, dicts, mapping, says

_ROLES = ("user", "assistant", "system", "tool")


def to_chat(raw: Mapping[str, Any]) -> list[Json]:
    role, parts = raw.get("role"), dicts(raw.get("content"))
    if role not in _ROLES:
        return []
    results = [mapping(part["tool_call_result"]) for part in parts if "tool_call_result" in part]
    views = [_answer(result) for result in results]
    used = [mapping(part["tool_call"]) for part in parts if "tool_call" in part]
    calls = neutral.calls_in(used, "id", "tool_name", "arguments")
    messages = neutral.views_of(role, [shown for part in parts for shown in _shown(part)], calls)
    if messages and isinstance(raw.get("name"), str) and role != "system":
        messages[0]["name"] = raw["name"]
    return [*views, *messages]


def unseen(raw: Mapping[str, Any]) -> list[Any]:
    """Return the reasoning, and the fields that the provider added to calls."""
    parts = dicts(raw.get("content"))
    hidden: list[Any] = [part for part in parts if "reasoning" in part]
    extras = (mapping(part.get("tool_call")).get("extra") for part in parts)
    return hidden + [extra for extra in extras if extra]


def from_chat(view: Mapping[str, Any]) -> list[Json]:
    role = "system" if view.get("role") == "developer" else view.get("role")
    message: Json = {"role": role, "meta": {}, "name": view.get("name")}
    if role == "tool":
        origin = {"id": view.get("tool_call_id"), "tool_name": view.get("name") or "tool"}
        result = {"result": neutral.text_of(view.get("content") or ""), "error": False}
        called = {**result, "origin": {**origin, "arguments": {}}}
        return [{**message, "name": None, "content": [{"tool_call_result": called}]}]
    content = [_part(part, role) for part in neutral.parts_of(view.get("content"))]
    content += [
        {"tool_call": {"id": call_id, "tool_name": name, "arguments": arguments}}
        for call_id, name, arguments in neutral.parsed_calls(view)
    ]
    return [{**message, "content": content}] if content else []


def _answer(result: Mapping[str, Any]) -> Json:
    origin, content = mapping(result.get("origin")), result.get("result")
    if isinstance(content, list):
        content = neutral.joined([shown for part in dicts(content) for shown in _shown(part)])
    return neutral.answer_of(origin.get("id"), content, origin.get("tool_name"))


def _shown(part: Json) -> Iterator[Json]:
    if says(part.get("text")):
        yield neutral.text_part(part["text"])
    for kind, field in (("image", "base64_image"), ("file", "base64_data")):
        if (media := mapping(part.get(kind))).get(field):
            yield neutral.media_part(
                neutral.data_url(media.get("mime_type"), media[field]), kind, media.get("filename")
            )


def _part(part: Json, role: Any) -> Json:
    """Convert a chat content part: a user's picture or file with data stays, others become text."""
    data = neutral.data_in(neutral.link_of(part)) if role == "user" else None
    if data is None:
        return {"text": neutral.mark_of(part)}
    kind, encoded = data
    if part.get("type") == "image_url":
        return {"image": {"base64_image": encoded, "mime_type": kind}}
    name = mapping(part.get("file")).get("filename")
    return {"file": {"base64_data": encoded, "mime_type": kind, "filename": name}}
