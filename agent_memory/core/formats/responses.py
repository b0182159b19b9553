"""Items of OpenAI's Responses API, which other providers use too. Pure.

A compaction item replaces all items before it, but only for the provider that made it: OpenAI and
xAI encrypt these items. A response of `responses.compact` is stored as one item. It is sent as the
items in its `output`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from agent_memory.core.formats import neutral
from agent_memory.core.formats.neutral import Json, dicts, dumped, mapping, says

COMPACTED = "response.compaction"
"""The value of the field `object` in a response of `responses.compact`."""

_CHAT_FIELDS = ("name", "tool_call_id")
_APPROVALS = {"mcp_approval_request": "id", "mcp_approval_response": "approval_request_id"}
_TEXTS = {"input_text": "text", "output_text": "text", "summary_text": "text", "refusal": "refusal"}
_OWN_PARTS = frozenset({"input_text", "output_text", "input_image", "input_file", "input_audio"})
_ITEMS = frozenset(
    {
        *("reasoning", "compaction", "item_reference", "mcp_list_tools", *_APPROVALS, "program"),
        *("additional_tools", "configuration_update"),
    }
)
_ENDS = ("_call", "_call_output", "_output")
_CALLS = {"function_call": "arguments", "custom_tool_call": "input"}
_OUTPUTS = ("function_call_output", "custom_tool_call_output")
_CUSTOM = ("custom_tool_call", "custom_tool_call_output")


def recognises(value: Mapping[str, Any]) -> bool:
    """Return whether a value is an item, by its type or by the types of its parts."""
    kind, role = value.get("type"), value.get("role")
    if role is None or kind in _ITEMS:
        return isinstance(kind, str) and (kind in _ITEMS or kind.endswith(_ENDS))
    if kind == "message":
        return role in neutral.ROLES
    parts = dicts(value.get("content"))
    return "phase" in value or any(
        str(part.get("type")) in _OWN_PARTS and not isinstance(part.get("input_audio"), dict)
        for part in parts
    )


def to_chat(raw: Mapping[str, Any]) -> list[Json]:
    """Return an item's chat message in a list. Empty if there is none, as for reasoning."""
    kind = str(raw.get("type"))
    if kind in _CALLS:
        call = neutral.call_of(raw.get("call_id"), raw.get("name"), raw.get(_CALLS[kind]) or "")
        return [{"role": "assistant", "content": None, "tool_calls": [call]}]
    if kind in _OUTPUTS:
        output = raw.get("output", "")
        is_content = isinstance(output, list) and all(
            str(mapping(part).get("type")) in _OWN_PARTS for part in output
        )
        content = (
            neutral.joined([_chat_part(part) for part in output]) if is_content else dumped(output)
        )
        return [neutral.answer_of(raw.get("call_id"), content)]
    if kind == "compaction":
        text = "\n".join(_texts(raw.get("content"))) or "\n".join(_texts(raw.get("summary")))
        return [{"role": "assistant", "content": neutral.summary_element(text)}] if text else []
    return messages_of(raw)


def messages_of(raw: Mapping[str, Any]) -> list[Json]:
    """Return the chat message of an item that has a chat role and content. Empty for others."""
    role, content = raw.get("role"), raw.get("content")
    if role not in neutral.ROLES or not isinstance(content, str | list):
        return []
    view: Json = {key: raw[key] for key in _CHAT_FIELDS if isinstance(raw.get(key), str)}
    shown = content
    if isinstance(content, list):
        shown = list(neutral.parts_of([_chat_part(part) for part in content]))
    is_empty = not (says(shown) if isinstance(shown, str) else shown)
    return [] if is_empty and role != "tool" else [{"role": role, "content": shown, **view}]


def from_chat(view: Mapping[str, Any]) -> list[Json]:
    role, content = str(view.get("role")), view.get("content")
    if role == "tool":
        output: Any = content
        if not isinstance(content, str):
            output = [_own_part(part) for part in neutral.parts_of(content)] or ""
        return [{"type": _OUTPUTS[0], "call_id": view.get("tool_call_id"), "output": output}]
    items: list[Json] = []
    if isinstance(content, str):
        if says(content):
            items.append({"role": role, "content": content})
    elif role == "assistant" and (text := neutral.text_of(content)):
        items.append({"role": role, "content": text})
    elif parts := [_own_part(part) for part in neutral.parts_of(content)]:
        items.append({"role": role, "content": parts})
    for call in neutral.calls_of(view):
        function = mapping(call.get("function") or call.get("custom"))
        arguments = function.get("arguments") or function.get("input")
        item = {"type": "function_call", "call_id": call.get("id")}
        item["name"] = neutral.tool_name(function.get("name"))
        items.append({**item, "arguments": neutral.arguments_text(arguments or {})})
    return items


def items(raw: Mapping[str, Any]) -> list[Any]:
    """Return the items to send for an item: usually the item itself, without blank texts.

    A response of `responses.compact` gives the items in its `output`. An empty message gives none.
    """
    output, content = raw.get("output"), raw.get("content")
    if raw.get("object") == COMPACTED and isinstance(output, list):
        return output
    if "role" not in raw or raw.get("type") in _ITEMS:
        return [raw if output != [] else {**raw, "output": ""}]
    if not isinstance(content, list):
        return [raw] if says(content) else []
    parts = [part for part in content if not _is_blank(part)]
    return [raw if len(parts) == len(content) else {**raw, "content": parts}] if parts else []


def is_counted(item: Any) -> bool:
    """Return whether an item has an id or belongs to a custom tool. `limited` may change it."""
    return isinstance(item, Mapping) and ("id" in item or item.get("type") in _CUSTOM)


def limited(context: list[Any]) -> list[Any]:
    """Give each output the type that belongs to its call, and remove duplicate ids.

    An item with a repeated id is dropped, unless it is a message, a function call or a custom tool
    call. These stay, without the id.
    """
    items, ids, outputs = list[Any](), set[object](), dict[object, str]()
    for item in context:
        item_id, kind = item.get("id"), item.get("type", "message")
        if item_id is not None and item_id in ids:
            if kind not in ("message", *_CALLS):
                continue
            item = {key: value for key, value in item.items() if key != "id"}
        ids.add(item_id)
        if kind in _CALLS:
            outputs[item.get("call_id")] = f"{kind}_output"
        elif kind in _OUTPUTS and kind != (own := outputs.get(item.get("call_id"), kind)):
            item = {**item, "type": own}
        items.append(item)
    return items


def compacts(raw: Mapping[str, Any]) -> bool:
    return any(
        item.get("type") == "compaction" and bool(item.get("encrypted_content"))
        for item in items(raw)
        if isinstance(item, Mapping)
    )


def pair(raw: Mapping[str, Any]) -> str | None:
    """Return the common key of a call and its output, or of an approval request and response.

    A call that the provider runs itself may have no output.
    """
    kind, call_id = str(raw.get("type")), raw.get("call_id")
    if raw.get("execution") == "server":
        return None
    if kind in _APPROVALS:
        kind, call_id = "approval", raw.get(_APPROVALS[kind])
    name = kind.removesuffix("_output").removesuffix("_call")
    return f"{name} {call_id}" if isinstance(call_id, str) else None


def leads(raw: Mapping[str, Any]) -> bool:
    return raw.get("type") == "reasoning"


def _is_blank(part: object) -> bool:
    block = mapping(part)
    key = _TEXTS.get(str(block.get("type")))
    return key is not None and not says(block.get(key))


def _texts(parts: object) -> Iterator[str]:
    for part in [parts] if isinstance(parts, str) else parts if isinstance(parts, list) else []:
        text = part.get("text") if isinstance(part, Mapping) else part
        if isinstance(text, str) and text:
            yield text


def _chat_part(part: object) -> Any:
    if not isinstance(part, dict):
        return part
    match part.get("type"):
        case "input_text" | "output_text" | "summary_text" | "refusal" as kind:
            return neutral.text_part(part.get(_TEXTS[kind], ""))
        case "input_image":
            image = {"url": part.get("image_url", "")}
            detail = {"detail": part["detail"]} if part.get("detail") else {}
            return {"type": "image_url", "image_url": image | detail}
        case "input_file":
            keys = ("file_id", "filename", "file_data")
            file = {key: part[key] for key in keys if part.get(key)}
            if part.get("file_url") and "file_data" not in file:
                file["file_data"] = part["file_url"]
            return {"type": "file", "file": file}
        case _:
            return part


def _own_part(part: object) -> Any:
    match mapping(part).get("type"):
        case "image_url" if neutral.openai_takes(mapping(part)):
            url = neutral.link_of(part)
            detail = mapping(mapping(part)["image_url"]).get("detail") or "auto"
            return {"type": "input_image", "image_url": url, "detail": detail}
        case "file" if neutral.openai_takes(mapping(part), links=True):
            file = mapping(mapping(part).get("file"))
            if (url := neutral.link_of(part)).startswith(("http:", "https:")):
                file = {"file_url": url}
            elif url and "filename" not in file:
                file = {**file, "filename": "file"}
            return {"type": "input_file", **file}
        case str(own) if own in _OWN_PARTS and own != "input_audio":
            return part
        case _:
            return {"type": "input_text", "text": neutral.mark_of(part)}
