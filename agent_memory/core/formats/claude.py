"""Messages of Anthropic's Messages API, whose content is a list of blocks. Pure.

A compaction block replaces all messages before it. Its content is text. Other models receive this
text as a summary.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from operator import is_
from typing import Any

from agent_memory.core.formats import neutral
from agent_memory.core.formats.neutral import Json, dicts, dumped, is_text, mapping, says

_BLOCKS = frozenset(
    {
        *("tool_use", "tool_result", "thinking", "redacted_thinking", "server_tool_use"),
        *("mcp_tool_use", "document", "search_result", "container_upload", "compaction"),
    }
)
_MOST_MARKS = 4
_THOUGHTS = ("thinking", "redacted_thinking")
_ENVELOPE = frozenset({"stop_reason", "model", "usage"})
"""Fields of a response that a request must not have."""


def recognises(value: Mapping[str, Any]) -> bool:
    if value.get("role") not in ("user", "assistant"):
        return False
    is_reply = value.get("type") == "message" and bool(_ENVELOPE & value.keys())
    return is_reply or any(map(_is_own, dicts(value.get("content"))))


def _is_own(block: Json) -> bool:
    kind = block.get("type")
    if not isinstance(kind, str):
        return False
    if kind == "image":
        return isinstance(block.get("source"), dict)
    if kind == "thinking":
        return isinstance(block.get("thinking"), str)  # a list in messages of Mistral
    return (
        kind in _BLOCKS
        or kind.endswith("_tool_result")
        or (kind == "text" and bool(block.get("citations")))
    )


def to_chat(raw: Mapping[str, Any]) -> list[Json]:
    """Return chat messages. Actions of tools that the provider runs are shown as text."""
    role, content = raw.get("role"), raw.get("content")
    if role not in ("user", "assistant", "system"):
        return []
    if isinstance(content, str):
        return [{"role": role, "content": content}] if says(content) else []
    blocks = dicts(content)
    views = [
        neutral.answer_of(block.get("tool_use_id"), _result(block.get("content")))
        for block in blocks
        if block.get("type") == "tool_result"
    ]
    parts = [part for block in blocks for part in _parts(block)]
    uses = [block for block in blocks if block.get("type") == "tool_use"]
    return views + neutral.views_of(role, parts, neutral.calls_in(uses, "id", "name", "input"))


def from_chat(view: Mapping[str, Any]) -> list[Json]:
    role, content = view.get("role"), view.get("content")
    blocks: Any = content
    if not isinstance(content, str):
        block_of = _block if role in ("user", "tool") else _text_block
        blocks = [block_of(part) for part in neutral.parts_of(content)]
    if role == "tool":
        block = {"type": "tool_result", "tool_use_id": view.get("tool_call_id"), "content": blocks}
        return [{"role": "user", "content": [block]}]
    uses = [
        {"type": "tool_use", "id": call_id, "name": name, "input": arguments}
        for call_id, name, arguments in neutral.parsed_calls(view)
    ]
    if uses:
        if isinstance(blocks, str):
            blocks = [neutral.text_part(blocks)] if says(blocks) else []
        return [{"role": role, "content": [*blocks, *uses]}]
    is_empty = not (says(blocks) if isinstance(blocks, str) else blocks)
    return [] if is_empty else [{"role": role, "content": blocks}]


def items(raw: Mapping[str, Any]) -> list[Json]:
    """Return a message in the form that a request accepts, or nothing if it is empty."""
    message: Json = dict(raw)
    if raw.get("type") == "message" and _ENVELOPE & raw.keys():
        message = {"role": raw.get("role"), "content": raw.get("content")}
    content = message.get("content")
    if not isinstance(content, list):
        return [message] if says(content) else []
    blocks = neutral.cleaned(content, _clean)
    while blocks and mapping(blocks[-1]).get("type") in _THOUGHTS:
        blocks = blocks[:-1]  # the API refuses a message that ends with a thinking block
    if blocks is not content:
        message = {**message, "content": blocks}
    return [message] if blocks else []


def _clean(block: Any) -> Any:
    """Return a block without blank texts. None for a blank block. Empty errors get a text."""
    if not isinstance(block, dict) or neutral.is_blank(block):
        return None if isinstance(block, dict) else block
    inner = cleaned = block.get("content")
    if isinstance(inner, list):
        blank = neutral.is_blank
        cleaned = neutral.cleaned(inner, lambda item: None if blank(mapping(item)) else item)
    if block.get("is_error") and not cleaned:
        cleaned = neutral.NO_OUTPUT
    return block if cleaned is inner else {**block, "content": cleaned}


def compacts(raw: Mapping[str, Any]) -> bool:
    blocks = dicts(raw.get("content"))
    return any(block.get("type") == "compaction" and block.get("content") for block in blocks)


def merged(messages: list[Json]) -> list[Json]:
    """Merge neighbouring messages with tool results into one message, results first."""
    return neutral.merged_neighbours(
        messages,
        lambda first, second: _is_results(first) and _is_results(second),
        lambda block: mapping(block).get("type") == "tool_result",
    )


def is_counted(value: Any) -> bool:
    """Return whether a message or a system text has cache marks, or white space at its end."""
    return _marked(value, 0)[0] is not value or _trimmed(value) is not value


def limited(context: list[Any]) -> list[Any]:
    """Return a context with only its last four cache marks (`cache_control`), the API's maximum.

    White space at the end of the context is removed if the last message is the assistant's.
    """
    limited_context, left = list(context), _MOST_MARKS
    for place in reversed(range(len(limited_context))):
        limited_context[place], left = _marked(limited_context[place], left)
    return [*limited_context[:-1], *map(_trimmed, limited_context[-1:])]


def _marked(value: Any, left: int) -> tuple[Any, int]:
    """Remove all but the last `left` cache marks. Return the value, and the rest of `left`."""
    if isinstance(value, list):
        items = list(value)
        for place in reversed(range(len(items))):
            items[place], left = _marked(items[place], left)
        return (value if all(map(is_, items, value)) else items), left
    if not isinstance(value, dict):
        return value, left
    if value.get("cache_control") is not None and "role" not in value:
        if left:
            left -= 1
        else:
            value = {key: field for key, field in value.items() if key != "cache_control"}
    for key in ("content", "source"):
        if isinstance(value.get(key), list | dict):
            inner, left = _marked(value[key], left)
            value = value if inner is value[key] else {**value, key: inner}
    return value, left


def _is_results(message: Json) -> bool:
    content = message.get("content")
    return any(block.get("type") == "tool_result" for block in dicts(content))


def _trimmed(message: Any) -> Any:
    content = message.get("content") if isinstance(message, dict) else None
    if not content or message.get("role") != "assistant":
        return message
    if isinstance(content, str):
        text = content.rstrip()
        return message if text == content else {**message, "content": text}
    last = content[-1]
    if not is_text(last) or (text := last["text"].rstrip()) == last["text"]:
        return message
    return {**message, "content": [*content[:-1], {**last, "text": text}]}


def _parts(block: Json) -> Iterator[Json]:
    kind = str(block.get("type"))
    match kind:
        case "text":
            if says(block.get("text")):
                yield neutral.text_part(block["text"])
        case "compaction":
            if isinstance(block.get("content"), str):
                yield neutral.text_part(neutral.summary_element(block["content"]))
        case "image":
            yield neutral.media_part(_url(mapping(block.get("source"))), "image")
        case "document":
            source = mapping(block.get("source"))
            if source.get("type") == "text":
                yield neutral.text_part(str(source.get("data") or "[document]"))
            elif source.get("type") == "content":
                yield from [part for item in dicts(source.get("content")) for part in _parts(item)]
            else:
                yield neutral.media_part(_url(source), name=block.get("title"))
        case "search_result":
            texts = [str(item.get("text") or "") for item in dicts(block.get("content"))]
            title = block.get("title") or block.get("source")
            yield neutral.text_part("\n".join([f"[search_result {title}]", *texts]))
        case "server_tool_use" | "mcp_tool_use":
            arguments = dumped(block.get("input") or {})
            yield neutral.text_part(f"[{kind} {block.get('name')} {arguments}]")
        case "tool_result" | "tool_use" | "thinking" | "redacted_thinking":
            pass
        case _ if kind.endswith("_tool_result"):
            content = block.get("content")
            titles = [str(item.get("title") or item.get("text") or "") for item in dicts(content)]
            summary = "; ".join(filter(None, titles)) or str(mapping(content).get("stdout") or "")
            yield neutral.text_part(f"[{kind}: {summary}]" if summary else f"[{kind}]")
        case _:
            yield neutral.text_part(neutral.mark_of(block))


def _url(source: Mapping[str, Any]) -> str:
    if source.get("type") == "base64":
        return neutral.data_url(source.get("media_type"), source.get("data"))
    return str(source.get("url") or source.get("file_id") or "")


def _result(content: object) -> Any:
    """Return a tool's result as chat content: text, or parts if it has pictures."""
    if not isinstance(content, list):
        return content or ""
    return neutral.joined([part for block in dicts(content) for part in _parts(block)])


def _text_block(part: object) -> Any:
    return part if is_text(part) else neutral.text_part(neutral.mark_of(part))


def _block(part: object) -> Any:
    """Return a chat content part as a block: text, an image or a document."""
    if is_text(part) or not isinstance(part, dict):
        return _text_block(part)
    url = neutral.link_of(part)
    is_image, data = part.get("type") == "image_url", neutral.data_in(url)
    source: Json | None = None
    if data is not None:
        kind, body = data
        if kind in (neutral.IMAGES if is_image else ("application/pdf",)):
            source = {"type": "base64", "media_type": kind, "data": body}
        elif kind == "text/plain":
            text = neutral.bytes_of(body).decode("utf-8", "replace")
            source = {"type": "text", "media_type": kind, "data": text}
    elif url.startswith(("http://", "https://")):
        source = {"type": "url", "url": url}
    if source is None:
        return neutral.text_part(neutral.text_of([part]))
    return {"type": "image" if is_image else "document", "source": source}
