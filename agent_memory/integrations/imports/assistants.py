"""Reads the data exports of ChatGPT and Claude: `conversations.json`, a list of conversations.

A conversation is a tree: a message names its predecessor.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from agent_memory.core.formats.neutral import mapping
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
from agent_memory.integrations.imports.files import SourceFiles, elements_in
from agent_memory.integrations.transcripts import Json, dated, listed, moment, text_in

_HIDDEN = "chatgpt.export"
"""The format of messages that ChatGPT's chats do not show, such as reasoning. They are stored
unchanged."""

_GPT_ROLES = ("user", "assistant", "system", "developer", "tool")
_PLAIN = ("text", "code", "execution_output")
_INNER = ("thoughts", "reasoning_recap", "user_editable_context", "model_editable_context")


def read_chatgpt(source: SourceFiles) -> Iterator[Event]:
    return read_each(elements_in(source, "conversations*.json"), _gpt_conversation)


def _gpt_conversation(part: Element) -> Iterator[Event]:
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
            yield _gpt_message(place, text_in(message.get("id")) or key, message, at)
        elif message is not None:  # the root and removed messages are None
            yield Unread(place, "not a message of ChatGPT: it is not an object")
        times[key] = at

    current = text_in(conversation.get("current_node"))
    yield from sessions_of(main, about, parents, current, read, _paired)


def _gpt_message(where: str, own: str, message: Mapping[str, Any], at: datetime | None) -> Event:
    author, content = mapping(message.get("author")), mapping(message.get("content"))
    role, kind = author.get("role"), text_in(content.get("content_type"))
    more = mapping(message.get("metadata"))
    if role not in _GPT_ROLES:
        return Unread(where, f"the role {role!r} is unknown")
    text = _gpt_text(content)
    if not text and kind in ("text", None):
        return Skipped("empty messages")
    notes: Json = {}
    if model := text_in(more.get("model_slug")):
        notes["model"] = model
    is_hidden = more.get("is_visually_hidden_from_conversation") is True
    if is_hidden or kind in _INNER or not text:
        hidden: Json = {"raw": dict(message), "format": _HIDDEN, "metadata": notes}
        return SourceMessage("", own, dated(hidden, at), where)
    if kind not in _PLAIN:
        notes["content"] = dict(content)
    fields: Json = {"role": role, "content": text, "metadata": notes}
    name = text_in(author.get("name")) if role == "tool" else text_in(message.get("recipient"))
    if name and name != "all":
        notes["tool"] = name
    return SourceMessage("", own, dated(fields, at), where)


def _gpt_text(content: Mapping[str, Any]) -> str:
    parts = [part for part in listed(content.get("parts")) if isinstance(part, str | Mapping)]
    texts = [part if isinstance(part, str) else _gpt_part(part) for part in parts]
    if not texts:
        named_so = ("title", "text", "result", "summary", "content")
        texts = [text for key in named_so if (text := text_in(content.get(key)))]
    return "\n".join(text for text in texts if text.strip())


def _gpt_part(part: Mapping[str, Any]) -> str:
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


_CLAUDE_ROLES = {"human": "user", "user": "user", "assistant": "assistant"}


def read_claude(source: SourceFiles) -> Iterator[Event]:
    return read_each(elements_in(source, "conversations*.json"), _claude_conversation)


def _claude_conversation(part: Element) -> Iterator[Event]:
    where, conversation = part.where, mapping(part.value)
    messages = conversation.get("chat_messages")
    if not isinstance(messages, list):
        yield Unread(where, "not a conversation of Claude: it has no `chat_messages`")
        return
    own = text_in(conversation.get("uuid"))
    if own is None:
        yield Unread(where, "not a conversation of Claude: it has no `uuid`")
        return
    main, start = named("claude", own), conversation.get("created_at")
    about = titled(conversation.get("name"))
    placed: dict[str, tuple[str, object]] = {}
    parents: dict[str, str | None] = {}
    last: str | None = None
    is_tree = any("parent_message_uuid" in mapping(message) for message in messages)
    for number, message in enumerate(messages, 1):
        key = text_in(mapping(message).get("uuid")) or f"{number}"
        parent = text_in(mapping(message).get("parent_message_uuid"))
        key = key if key not in parents else f"{key}/{number}"
        parents[key], last = parent if is_tree else last, key
        placed[key] = f"{where}, message {number}", message

    def read(key: str) -> Iterator[Event]:
        place, message = placed[key]
        return _claude_messages(place, key, message, start)

    current = text_in(conversation.get("current_leaf_message_uuid")) or last
    yield from sessions_of(main, about, parents, current, read)


def _claude_messages(where: str, own: str, value: object, begun: object) -> Iterator[Event]:
    """Convert a message of an export to chat messages. Each tool result is a separate message."""
    message = mapping(value)
    role = _CLAUDE_ROLES.get(str(message.get("sender")))
    if role is None:
        yield Unread(where, f"the sender {message.get('sender')!r} is unknown")
        return
    blocks = [mapping(block) for block in listed(message.get("content"))]
    if not blocks and (text := text_in(message.get("text"))):
        blocks = [{"type": "text", "text": text}]
    steps = list(_steps(blocks, own, role))
    files = "\n\n".join(_files(message))
    if files and steps:
        steps[0]["content"] = "\n\n".join(filter(None, [steps[0]["content"], files]))
    elif files:
        steps = [{"role": role, "content": files}]
    if not steps:
        yield Skipped("empty messages")
    at = moment(message.get("created_at"), begun)
    thoughts = [thought for block in blocks if (thought := text_in(block.get("thinking")))]
    for number, step in enumerate(steps):
        key = f"{own}/{number}" if number else own
        notes = {"thinking": thoughts} if thoughts and not number else {}
        yield SourceMessage("", key, dated({**step, "metadata": notes}, at), where)


def _steps(blocks: Sequence[Mapping[str, Any]], own: str, role: str) -> Iterator[Json]:
    """Split a message of an export, which can have texts, tool calls and tool results."""
    texts: list[str] = []
    unnamed = [block for block in blocks if block.get("type") == "tool_result"]
    results = {key: block for block in unnamed if (key := text_in(block.get("tool_use_id")))}
    for number, block in enumerate(blocks):
        kind = block.get("type")
        if kind == "tool_use":
            result = results.get(text_in(block.get("id")) or "")
            if result is None:  # older exports have no ids: the next result belongs to the call
                result = next((other for other in unnamed if not other.get("tool_use_id")), None)
            name, arguments = str(block.get("name")), block.get("input")
            encoded = json.dumps(arguments, ensure_ascii=False)
            if result is None:
                texts.append(f"[{name}: {encoded}]")
                continue
            unnamed = [other for other in unnamed if other is not result]
            call_id = text_in(block.get("id")) or f"{own}/{number}"
            function = {"name": name, "arguments": encoded}
            call: Json = {"id": call_id, "type": "function", "function": function}
            yield {"role": "assistant", "content": _joined(texts), "tool_calls": [call]}
            yield {"role": "tool", "tool_call_id": call_id, "content": _result_text(result)}
            texts = []
        elif kind != "tool_result" and (text := _block_text(block)):
            texts.append(text)
    if texts:
        yield {"role": role, "content": _joined(texts)}


def _joined(texts: Sequence[str]) -> str | None:
    return "\n".join(texts) or None


def _block_text(block: Mapping[str, Any]) -> str | None:
    if block.get("type") in ("thinking", "redacted_thinking", "token_budget"):
        return None
    if text := text_in(block.get("text")):
        return text
    return f"[{block.get('type')}]" if block.get("type") != "text" else None


def _result_text(result: Mapping[str, Any]) -> str:
    content = result.get("content")
    if isinstance(content, str):
        return content
    texts = [_block_text(mapping(part)) for part in listed(content)]
    return "\n".join(text for text in texts if text)


def _files(message: Mapping[str, Any]) -> Iterator[str]:
    """Yield the name of each attachment, with its text if the export contains it."""
    names: set[str | None] = set()
    for file in map(mapping, listed(message.get("attachments"))):
        name, text = text_in(file.get("file_name")), text_in(file.get("extracted_content"))
        names.add(name)
        label = f"[attachment: {name or 'pasted text'}]"
        yield f"{label}\n{text}" if text else label
    for file in map(mapping, [*listed(message.get("files")), *listed(message.get("files_v2"))]):
        name = text_in(file.get("file_name"))
        if name not in names:
            names.add(name)
            yield f"[file: {name or file.get('file_uuid')}]"
