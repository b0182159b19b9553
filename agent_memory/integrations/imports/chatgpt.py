"""Reads ChatGPT's data export: `conversations.json`, where a conversation is a tree of messages."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from agent_memory.integrations.imports.conversations import (
    Element,
    Event,
    Skipped,
    SourceMessage,
    Unread,
    named,
    read_each,
    sessions_of,
    titled,
)
from agent_memory.integrations.imports.files import SourceFiles
from agent_memory.integrations.imports.json_parts import elements_in
from agent_memory.integrations.transcripts import Json, dated, listed, mapping, moment, text_in

FORMAT = "chatgpt.export"
"""The format of messages that ChatGPT's chats do not show, such as reasoning. They are stored
unchanged."""

_ROLES = ("user", "assistant", "system", "developer", "tool")
_PLAIN = ("text", "code", "execution_output")
_INNER = ("thoughts", "reasoning_recap", "user_editable_context", "model_editable_context")


def read_chatgpt(source: SourceFiles) -> Iterator[Event]:
    return read_each(elements_in(source, "conversations*.json"), _conversation)


def _conversation(part: Element) -> Iterator[Event]:
    where, conversation = part.where, mapping(part.value)
    nodes = conversation.get("mapping")
    if not isinstance(nodes, Mapping):
        yield Unread(where, "not a conversation of ChatGPT: it has no `mapping`")
        return
    own = text_in(conversation.get("conversation_id")) or text_in(conversation.get("id"))
    main = named("chatgpt", own or next(iter(nodes), "empty"))
    about = titled(conversation.get("title"))
    start = moment(conversation.get("create_time"))
    parents = {key: text_in(mapping(node).get("parent")) for key, node in nodes.items()}
    times: dict[str | None, datetime | None] = {}

    def read(key: str) -> Iterator[Event]:
        message, place = mapping(nodes[key]).get("message"), f"{where}, message {key}"
        at = times.get(parents[key], start)
        if isinstance(message, Mapping):
            at = moment(message.get("create_time"), message.get("update_time"), at)
            yield _message(place, text_in(message.get("id")) or key, message, at)
        elif message is not None:  # the root and removed messages are None
            yield Unread(place, "not a message of ChatGPT: it is not an object")
        times[key] = at

    current = text_in(conversation.get("current_node"))
    yield from sessions_of(main, about, parents, current, read, _paired)


def _message(where: str, own: str, message: Mapping[str, Any], at: datetime | None) -> Event:
    author, content = mapping(message.get("author")), mapping(message.get("content"))
    role, kind = author.get("role"), text_in(content.get("content_type"))
    more = mapping(message.get("metadata"))
    if role not in _ROLES:
        return Unread(where, f"the role {role!r} is unknown")
    text = _text(content)
    if not text and kind in ("text", None):
        return Skipped("empty messages")
    notes: Json = {}
    if model := text_in(more.get("model_slug")):
        notes["model"] = model
    is_hidden = more.get("is_visually_hidden_from_conversation") is True
    if is_hidden or kind in _INNER or not text:
        hidden: Json = {"raw": dict(message), "format": FORMAT, "metadata": notes}
        return SourceMessage("", own, dated(hidden, at), where)
    if kind not in _PLAIN:
        notes["content"] = dict(content)
    fields: Json = {"role": role, "content": text, "metadata": notes}
    name = text_in(author.get("name")) if role == "tool" else text_in(message.get("recipient"))
    if name and name != "all":
        notes["tool"] = name
    return SourceMessage("", own, dated(fields, at), where)


def _text(content: Mapping[str, Any]) -> str:
    parts = [part for part in listed(content.get("parts")) if isinstance(part, str | Mapping)]
    texts = [part if isinstance(part, str) else _part(part) for part in parts]
    if not texts:
        named_so = ("title", "text", "result", "summary", "content")
        texts = [text for key in named_so if (text := text_in(content.get(key)))]
    return "\n".join(text for text in texts if text.strip())


def _part(part: Mapping[str, Any]) -> str:
    """Return a part of a message's content as text. A file is replaced by its kind and name."""
    if text := text_in(part.get("text")):
        return text
    kind = str(part.get("content_type") or "part").removesuffix("_asset_pointer").replace("_", " ")
    audio = mapping(part.get("audio_asset_pointer"))
    pointer = part.get("asset_pointer") or audio.get("asset_pointer")
    name = str(pointer or "").rpartition("/")[2]
    return f"[{kind}: {name}]" if name else f"[{kind}]"


def _paired(messages: Sequence[SourceMessage]) -> Iterator[SourceMessage]:
    """Yield messages in order. A request to a tool becomes a tool call if the answer follows."""
    call_id: str | None = None
    for current, after in zip(messages, [*messages[1:], None], strict=True):
        message, name = current.message, mapping(current.message.get("metadata")).get("tool")
        answered = after is not None and after.message.get("role") == "tool"
        if message.get("role") == "assistant" and name and answered:
            function = {"name": name, "arguments": json.dumps({"input": message["content"]})}
            call = {"id": current.id, "type": "function", "function": function}
            message = {**message, "content": None, "tool_calls": [call]}
            call_id = current.id
        elif message.get("role") == "tool" and call_id is not None:
            message, call_id = {**message, "tool_call_id": call_id}, None
        else:
            call_id = None
        yield replace(current, message=message)
