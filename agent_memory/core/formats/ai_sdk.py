"""Messages of the AI SDK (Vercel): `ModelMessage` and `UIMessage`. Pure.

A call in a `UIMessage` contains its result.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from agent_memory.core.formats import neutral
from agent_memory.core.formats.neutral import Json, dicts, dumped, mapping, role_in, says

_OWN = ("tool-call", "tool-result", "tool-approval-request", "tool-approval-response")
_UNSAID = ("reasoning", "step-start", "source-url", "source-document", *_OWN[2:])
"""Types of parts that chat messages do not show."""


def recognises(value: Mapping[str, Any]) -> bool:
    """Return whether a value is a message of the SDK, by its role and the types of its parts."""
    if not isinstance(value.get("role"), str):
        return False
    parts = value.get("parts")
    if isinstance(parts, list):
        return all(isinstance(part, dict) and "type" in part for part in parts)
    return any(map(_is_own, dicts(value.get("content"))))


def to_chat(raw: Mapping[str, Any]) -> list[Json]:
    """Return a message as chat messages: for each step, the text and calls, then the results."""
    role = role_in(str(raw.get("role")))
    views: list[Json] = []
    texts: list[Json] = []
    calls: list[Json] = []
    answers: list[Json] = []
    for part in dicts(raw.get("parts", raw.get("content"))):
        shown = list(_shown(part))
        if answers and (shown or part.get("type") == "step-start"):
            views += [*neutral.views_of(role, texts, calls), *answers]
            texts, calls, answers = [], [], []
        texts += shown
        tool = _tool(part)
        if tool is not None:
            call_id, name = tool.get("toolCallId"), tool["toolName"]
            if part["type"] != "tool-result":
                calls.append(neutral.call_of(call_id, name, tool.get("input", tool.get("args"))))
            if (output := _output(tool)) is not None:
                answers.append(neutral.answer_of(call_id, output, name))
    return [*views, *neutral.views_of(role, texts, calls), *answers]


def from_chat(view: Mapping[str, Any]) -> list[Json]:
    role, content = view.get("role"), view.get("content")
    if role == "tool":
        result = {"type": "tool-result", "toolCallId": view.get("tool_call_id")}
        output = {"type": "text", "value": neutral.text_of(content or "")}
        named = {**result, "toolName": view.get("name") or "tool", "output": output}
        return [{"role": "tool", "content": [named]}]
    parts = [_part(part, role) for part in neutral.parts_of(content)]
    for call_id, name, arguments in neutral.parsed_calls(view):
        call = {"type": "tool-call", "toolCallId": call_id, "toolName": name}
        parts.append({**call, "input": arguments})
    text = neutral.joined(parts)
    return [{"role": role, "content": text}] if text else []


def items(raw: Mapping[str, Any]) -> list[Any]:
    """Return a message in the form that the SDK's functions accept: as `ModelMessage`s."""
    if "parts" not in raw:
        return [raw]
    return [message for view in to_chat(raw) for message in from_chat(view)]


def _part(part: Any, role: object) -> Json:
    """Convert a user's picture, or a user's file with data, to a file. Other parts become text."""
    link = neutral.link_of(part) if role == "user" else ""
    is_picture = bool(link) and part.get("type") == "image_url"
    data = neutral.data_in(link) or (("image/*", link) if is_picture else None)
    if data is None:
        return neutral.text_part(neutral.mark_of(part))
    file = {"type": "file", "mediaType": data[0], "data": data[1]}
    name = mapping(part.get("file")).get("filename")
    return {**file, "filename": name} if name else file


def _is_own(part: Json) -> bool:
    kind = part.get("type")
    is_media = kind in ("image", "file") and ("mediaType" in part or "image" in part)
    return kind in _OWN or is_media or (kind == "reasoning" and "text" in part)


def _tool(part: Json) -> Json | None:
    """Return the fields of a call, a result, or both. None for any other part."""
    kind = str(part.get("type"))
    if kind == "tool-invocation":  # version 4 of the SDK
        part = dict(mapping(part.get("toolInvocation")))
    elif kind.startswith("tool-") and "state" in part:
        part = {"toolName": kind.removeprefix("tool-"), **part}
    elif kind not in (*_OWN[:2], "dynamic-tool"):
        return None
    return {"toolName": "tool", **part}


def _output(tool: Json) -> Any:
    """Return a call's result as text, or as parts if there are pictures. None without a result."""
    if tool.get("state") in ("output-error", "output-denied"):
        return str(tool.get("errorText") or "[denied]")
    output = tool.get("output", tool.get("result"))
    if "state" in tool or output is None:
        return None if output is None else dumped(output)
    kind, value = mapping(output).get("type"), mapping(output).get("value")
    if kind == "content" and isinstance(value, list):
        return neutral.joined([item for part in dicts(value) for item in _shown(part)])
    if kind == "execution-denied":
        return str(mapping(output).get("reason") or "[denied]")
    return dumped(value if isinstance(kind, str) and "value" in output else output)


def _shown(part: Json) -> Iterator[Json]:
    kind = str(part.get("type"))
    if kind == "text":
        if says(part.get("text")):
            yield neutral.text_part(part["text"])
    elif kind in ("image", "file", "media") or kind.startswith(("image-", "file-")):
        data = part.get("image", part.get("data", part.get("url")))
        media = str(part.get("mediaType") or ("image/png" if kind.startswith("image") else ""))
        url = str(data or "")
        if not url.startswith(("http://", "https://", "data:")):
            url = neutral.data_url(media, data)
        yield neutral.media_part(url, media, part.get("filename"))
    elif kind not in _UNSAID and _tool(part) is None and not kind.startswith("data-"):
        yield neutral.text_part(neutral.mark_of(part))
