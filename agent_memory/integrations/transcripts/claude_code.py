"""Converts lines of Claude Code's transcripts to messages of Anthropic's API and of chats.

Anthropic calls the format of these files internal. Unknown lines are skipped.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from agent_memory.core.formats.claude import to_chat
from agent_memory.integrations.loose import Json, mapping, text_in
from agent_memory.integrations.transcripts import chat
from agent_memory.integrations.transcripts.own import parted, without_ours_in

SPOKEN = ("user", "assistant")
"""The types of lines with messages."""

_UNSAID = ("isMeta", "isCompactSummary", "isApiErrorMessage")
_REMINDER = ("<system-reminder>", "</system-reminder>")
_COMMAND = re.compile(r"<((?:command|local-command|bash)-\w+)>")


class Spoken(NamedTuple):
    """The message of a line, without the output of our hooks."""

    whole: Json  # the whole message
    # the message without reminders and commands. None if Claude Code itself wrote the message, for
    # example the summary of a compaction
    cleaned: Json | None


def spoken(line: Mapping[str, Any]) -> Spoken | None:
    message = mapping(line.get("message"))
    role, content = message.get("role"), message.get("content")
    if role not in SPOKEN or line.get("type") not in SPOKEN or not isinstance(content, str | list):
        return None
    whole = {"role": role, "content": without_ours_in(content)}
    if any(line.get(mark) for mark in _UNSAID):
        return Spoken(whole, None)
    cleaned = _user_content(whole["content"]) if role == "user" else whole["content"]
    return Spoken(whole, {"role": role, "content": cleaned} if cleaned else None)


def messages(line: Mapping[str, Any], place: str) -> list[Json]:
    """Return the chat messages of a line. Each tool result becomes a separate message.

    Lines of subagents, thinking, and text of Claude Code itself are left out. An image is replaced
    by its type.
    """
    speech = spoken(line)
    if speech is None or speech.cleaned is None or line.get("isSidechain"):
        return []
    shown = {**speech.cleaned, "content": _shown(speech.cleaned["content"])}
    return chat.messages(to_chat(shown), text_in(line.get("uuid")) or place, line.get("timestamp"))


def _shown(content: Any) -> Any:
    """Merge the texts of a content, and convert tool results to text."""
    if isinstance(content, str):
        return content
    tools = [
        {**block, "content": chat.text_of(block.get("content"))}
        for block in content
        if mapping(block).get("type") in ("tool_use", "tool_result")
    ]
    return [*tools, {"type": "text", "text": chat.text_of(content)}]


def _user_content(content: Any) -> Any:
    if isinstance(content, str):
        return _typed(content)
    texts = [_typed(text) if (text := _text(block)) is not None else None for block in content]
    return [
        block if text is None or text == block["text"] else {**block, "text": text}
        for block, text in zip(content, texts, strict=True)
        if text != ""
    ]


def _text(block: object) -> str | None:
    text = mapping(block).get("text")
    return text if isinstance(text, str) else None


def _typed(text: str) -> str:
    rest = parted(text, *_REMINDER)[0]
    rest = text if rest == text else rest.strip()
    return "" if not rest.strip() or _is_command(rest.strip()) else rest


def _is_command(text: str) -> bool:
    """Return whether a text consists only of elements in which Claude Code reports commands."""
    at = 0
    while match := _COMMAND.match(text, at):
        ends = f"</{match[1]}>"
        end = text.find(ends, match.end())
        if end < 0:
            return False
        at = end + len(ends)
        while text[at : at + 1].isspace():
            at += 1
    return 0 < at == len(text)
