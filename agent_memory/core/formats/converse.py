"""Messages of Bedrock's Converse API, whose content is a list of blocks with one key each. Pure.

Records of the framework Strands, which hold such a message, are accepted too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from operator import is_
from typing import Any

from agent_memory.core.formats import neutral
from agent_memory.core.formats.neutral import Json, dicts, dumped, mapping, says

_KEYS = frozenset(
    {
        *("text", "image", "document", "video", "audio", "toolUse", "toolResult", "guardContent"),
        *("cachePoint", "reasoningContent", "citationsContent", "searchResult"),
    }
)
_SHOWN = frozenset({"text", "image", "document", "video", "audio", "toolUse", "toolResult"})
_IMAGES = ("png", "jpeg", "gif", "webp")
_DOCUMENTS = {
    "application/pdf": "pdf",
    "text/plain": "txt",
    "text/csv": "csv",
    "text/html": "html",
    "text/markdown": "md",
}
_TYPES = {form: kind for kind, form in _DOCUMENTS.items()}
_NO_NAME = re.compile(r"[^a-zA-Z0-9\s\-()\[\]]+")
_MOST_NAME = 200


def recognises(value: Mapping[str, Any]) -> bool:
    content = value.get("content")
    blocks = dicts(content)
    return (
        value.get("role") in ("user", "assistant")
        and bool(blocks)
        and len(blocks) == len(content or ())
        and all("type" not in block and _KEYS & block.keys() for block in blocks)
    )


def unseen(raw: Mapping[str, Any]) -> list[Json] | None:
    """Return the blocks of a record of Strands that chat messages do not show completely."""
    if not isinstance(raw.get("message"), Mapping):
        return None
    return [block for block in dicts(_message(raw).get("content")) if not block.keys() & _SHOWN]


def to_chat(raw: Mapping[str, Any]) -> list[Json]:
    """Return chat messages. A redacted message is shown as its replacement."""
    message = _message(raw)
    role, content = message.get("role"), message.get("content")
    if role not in ("user", "assistant", "system"):
        return []
    blocks = dicts(content)
    results = dicts([block.get("toolResult") for block in blocks])
    views = [
        neutral.answer_of(item.get("toolUseId"), _result(item.get("content"))) for item in results
    ]
    parts = [part for block in blocks for part in _parts(block)]
    uses = dicts([block.get("toolUse") for block in blocks])
    calls = neutral.calls_in(uses, "toolUseId", "name", "input")
    return views + neutral.views_of(str(role), parts, calls)


def from_chat(view: Mapping[str, Any]) -> list[Json]:
    role = view.get("role")
    blocks = [_block(part, str(role)) for part in neutral.parts_of(view.get("content"))]
    if role == "tool":
        blocks = blocks or [{"text": neutral.NO_OUTPUT}]
        result = {"toolUseId": view.get("tool_call_id"), "status": "success", "content": blocks}
        return [{"role": "user", "content": [{"toolResult": result}]}]
    uses = [
        {"toolUse": {"toolUseId": call_id, "name": name, "input": arguments}}
        for call_id, name, arguments in neutral.parsed_calls(view)
    ]
    return [{"role": role, "content": [*blocks, *uses]}] if blocks or uses else []


def items(raw: Mapping[str, Any]) -> list[Json]:
    """Return a message without the blocks that the API refuses, or nothing if it is empty."""
    message: Json = dict(_message(raw))
    content = message.get("content")
    blocks = neutral.cleaned(content, _clean) if isinstance(content, list) else []
    if blocks is not content:
        message["content"] = blocks
    return [message] if blocks else []


def merged(messages: list[Json]) -> list[Json]:
    return neutral.merged_neighbours(
        messages,
        lambda first, second: first["role"] == second["role"],
        lambda block: "toolResult" in block,
    )


def is_counted(message: Any) -> bool:
    """Return whether a message has documents, so that `limited` may change it."""
    return isinstance(message, dict) and any(map(_has_document, message["content"]))


def limited(context: list[Any]) -> list[Any]:
    """Give each document of a context a unique name, and each message with documents a text."""
    used: set[str] = set()
    return [_documented(message, used) if is_counted(message) else message for message in context]


def _has_document(block: Any) -> bool:
    content = mapping(mapping(block).get("toolResult")).get("content")
    return "document" in mapping(block) or any("document" in item for item in dicts(content))


def _documented(message: Json, used: set[str]) -> Json:
    blocks = [_titled(block, used) for block in message["content"]]
    if any("document" in mapping(block) for block in blocks):
        if not any("text" in mapping(block) for block in blocks):
            blocks.append({"text": "[document]"})
    elif all(map(is_, blocks, message["content"])):
        return message
    return {**message, "content": blocks}


def _titled(block: Any, used: set[str]) -> Any:
    value, document = mapping(block).get("toolResult"), mapping(block).get("document")
    if isinstance(value, dict) and any("document" in item for item in dicts(value.get("content"))):
        content = [_titled(item, used) for item in value["content"]]
        return {**block, "toolResult": {**value, "content": content}}
    if not isinstance(document, dict):
        return block
    name = own = _document_name(document.get("name"))
    count = 1
    while name in used:
        count += 1
        name = f"{own[: _MOST_NAME - 5]} {count}"
    used.add(name)
    if name == document.get("name"):
        return block
    return {**block, "document": {**document, "name": name}}


def _document_name(name: object) -> str:
    return " ".join(_NO_NAME.sub(" ", str(name or "")).split())[:_MOST_NAME].strip() or "document"


def _message(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    return mapping(raw.get("redact_message") or raw.get("message") or raw)


def _clean(block: Any) -> Any:
    """Return a block without blank texts. None for a blank block. Empty results get a text."""
    if _is_blank(block):
        return None
    result = mapping(mapping(block).get("toolResult"))
    inner = result.get("content")
    if not isinstance(inner, list):
        return block
    content = neutral.cleaned(inner, lambda item: None if _is_blank(item) else item)
    content = content or [{"text": neutral.NO_OUTPUT}]
    return block if content is inner else {**block, "toolResult": {**result, "content": content}}


def _is_blank(block: Any) -> bool:
    return isinstance(block, dict) and block.keys() == {"text"} and not says(block["text"])


def _parts(block: Json) -> Iterator[Json]:
    if says(block.get("text")):
        yield neutral.text_part(block["text"])
    for kind in ("image", "document", "video", "audio"):
        if isinstance(block.get(kind), dict):
            yield _file(kind, block[kind])
    for text in dicts(mapping(block.get("citationsContent")).get("content")):
        if says(text.get("text")):
            yield neutral.text_part(text["text"])


def _file(kind: str, block: Json) -> Json:
    source = mapping(block.get("source"))
    data = source.get("bytes")
    if isinstance(data, dict):  # the form in which Strands stores bytes
        data = data.get("data")
    form = str(block.get("format") or "octet-stream")
    if data:
        media_type = _TYPES.get(form, form) if kind == "document" else f"{kind}/{form}"
        url = neutral.data_url(media_type, data)
    else:
        location = mapping(source.get("location") or source.get("s3Location"))
        url = str(location.get("uri", ""))
    return neutral.media_part(url, kind, block.get("name") or kind)


def _result(content: object) -> Any:
    """Return a tool's result as chat content: text, or parts if it has pictures."""
    parts: list[Json] = []
    for block in dicts(content):
        if "json" in block:
            parts.append(neutral.text_part(dumped(block["json"])))
        else:
            parts += _parts(block)
    return neutral.joined(parts)


def _block(part: Any, role: str) -> Json:
    """Return a chat content part as a block. Only users and tools can have pictures and files."""
    data = neutral.data_in(neutral.link_of(part)) if role in ("user", "tool") else None
    if data is not None:
        kind, body = data
        family, _, form = kind.partition("/")
        source = {"bytes": neutral.bytes_of(body)}
        if family == "image" and form in _IMAGES:
            return {"image": {"format": form, "source": source}}
        if kind in _DOCUMENTS:
            name = _document_name(mapping(part.get("file")).get("filename"))
            return {"document": {"format": _DOCUMENTS[kind], "name": name, "source": source}}
    return {"text": neutral.mark_of(part)}
