"""Messages of Anthropic's Messages API, whose content is a list of blocks. Pure.

A compaction block stands for all before it. Claude's can be read, so that its text is a summary for
any other model too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from agent_memory.core.formats.responses import calls_of, summary_element

Json = dict[str, Any]


def to_chat(raw: Mapping[str, Any]) -> list[Json]:
    """The chat messages of a message: results of tools first, each on its own, then what is said.

    Thinking has no chat form.
    """
    role, content = raw.get("role"), raw.get("content")
    if role not in ("user", "assistant", "system") or not isinstance(content, str | list):
        return []
    if isinstance(content, str):
        return [{"role": role, "content": content}]
    blocks = [block for block in content if isinstance(block, dict)]
    views = [
        {
            "role": "tool",
            "tool_call_id": block.get("tool_use_id"),
            "content": _told(block.get("content")),
        }
        for block in blocks
        if block.get("type") == "tool_result"
    ]
    parts = [part for block in blocks for part in _parts(block)]
    calls = [_call(block) for block in blocks if block.get("type") == "tool_use"]
    if parts or calls:
        only_text = all(part["type"] == "text" for part in parts)
        text = "\n".join(part["text"] for part in parts) if only_text else parts
        asked = {"tool_calls": calls} if calls else {}
        views.append({"role": role, "content": text or None, **asked})
    return views


def from_chat(view: Mapping[str, Any]) -> list[Json]:
    """The message of a chat message. A system message stays one: Claude is given it apart."""
    role, content = view.get("role"), view.get("content")
    if role in ("tool", "function"):
        called = view.get("tool_call_id" if role == "tool" else "name")
        block = {"type": "tool_result", "tool_use_id": called, "content": _own(content)}
        return [{"role": "user", "content": [block]}]
    blocks = _own(content)
    if calls := calls_of(view):
        said = [{"type": "text", "text": blocks}] if isinstance(blocks, str) else blocks
        blocks = [*(said if content else ()), *map(_use, calls)]
    return [{"role": role, "content": blocks}] if blocks else []


def compacts(raw: Mapping[str, Any]) -> bool:
    """Whether a message begins with what stands for all before it; a failed compaction does not."""
    content = raw.get("content")
    return isinstance(content, list) and any(
        isinstance(block, dict) and block.get("type") == "compaction" and block.get("content")
        for block in content
    )


def _parts(block: Json) -> Iterator[Json]:
    match block.get("type"):
        case "text" if block.get("text"):
            yield {"type": "text", "text": block["text"]}
        case "compaction" if isinstance(block.get("content"), str):
            yield {"type": "text", "text": summary_element(block["content"])}
        case "image":
            yield {"type": "image_url", "image_url": {"url": _url(block.get("source") or {})}}
        case "document":
            source = block.get("source") or {}
            if source.get("type") == "text":
                yield {"type": "text", "text": source.get("data") or ""}
            else:
                name = {"filename": block["title"]} if block.get("title") else {}
                yield {"type": "file", "file": {"file_data": _url(source), **name}}


def _url(source: Json) -> str:
    if source.get("type") == "base64":
        return f"data:{source.get('media_type')};base64,{source.get('data')}"
    return str(source.get("url") or source.get("file_id") or "")


def _told(content: object) -> Any:
    """What a tool gave, as a chat shows it: text, or parts where there are pictures."""
    if not isinstance(content, list):
        return content or ""
    parts = [part for block in content if isinstance(block, dict) for part in _parts(block)]
    only_text = all(part["type"] == "text" for part in parts)
    return "\n".join(part["text"] for part in parts) if only_text else parts


def _call(block: Json) -> Json:
    arguments = json.dumps(block.get("input") or {}, ensure_ascii=False)
    function = {"name": block.get("name"), "arguments": arguments}
    return {"id": block.get("id"), "type": "function", "function": function}


def _use(call: Json) -> Json:
    function = call.get("function") or {}
    try:
        given = json.loads(function.get("arguments") or "{}")
    except ValueError:
        given = None
    asked = given if isinstance(given, dict) else {"arguments": function.get("arguments")}
    return {"type": "tool_use", "id": call.get("id"), "name": function.get("name"), "input": asked}


def _own(content: object) -> Any:
    """A chat message's content as Claude takes it."""
    if not isinstance(content, list):
        return content or ""
    return [_block(part) for part in content]


def _block(part: object) -> object:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    if not isinstance(part, dict) or part.get("type") not in ("image_url", "file"):
        return part
    image, file = part.get("image_url"), part.get("file") or {}
    url = image.get("url") if isinstance(image, dict) else image or file.get("file_data") or ""
    head, comma, data = str(url).partition(";base64,")
    source = {"type": "url", "url": url}
    if comma:
        kind = head.removeprefix("data:")
        source = {"type": "base64", "media_type": kind, "data": data}
    elif file.get("file_id"):
        source = {"type": "file", "file_id": file["file_id"]}
    return {"type": "image" if part["type"] == "image_url" else "document", "source": source}
