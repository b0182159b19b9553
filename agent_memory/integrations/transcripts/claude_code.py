"""Lines of Claude Code's transcripts, as messages of Anthropic's API and as chat messages. Pure.

Anthropic calls the form of these files internal: what is not known here is passed over.
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
"""The types of the lines that hold messages."""

_UNSAID = ("isMeta", "isCompactSummary", "isApiErrorMessage")
_REMINDER = ("<system-reminder>", "</system-reminder>")
_COMMAND = re.compile(r"<((?:command|local-command|bash)-\w+)>")


class Spoken(NamedTuple):
    """The message of a line, without what a hook has put there.

    Attributes:
        whole: All of it.
        said: What the user or the model says of it: without reminders and commands. None for what
            Claude Code writes in their name, such as a compaction's summary.
    """

    whole: Json
    said: Json | None


def spoken(line: Mapping[str, Any]) -> Spoken | None:
    """The message of a line; None for a line that has none."""
    message = mapping(line.get("message"))
    role, content = message.get("role"), message.get("content")
    if role not in SPOKEN or line.get("type") not in SPOKEN or not isinstance(content, str | list):
        return None
    whole = {"role": role, "content": without_ours_in(content)}
    if any(line.get(mark) for mark in _UNSAID):
        return Spoken(whole, None)
    said = _asked(whole["content"]) if role == "user" else whole["content"]
    return Spoken(whole, {"role": role, "content": said} if said else None)


def messages(line: Mapping[str, Any], place: str) -> list[Json]:
    """What one line says: none, one, or a result of each tool and what the user said with them.

    Left out are a subagent's lines, thinking, and what nobody said. An image is named, not kept.

    Args:
        line: The line.
        place: Names the line where it has no id of its own.
    """
    found = spoken(line)
    if found is None or found.said is None or line.get("isSidechain"):
        return []
    shown = {**found.said, "content": _shown(found.said["content"])}
    return chat.messages(to_chat(shown), text_in(line.get("uuid")) or place, line.get("timestamp"))


def _shown(content: Any) -> Any:
    """A content whose texts are one, and whose results of tools are texts."""
    if isinstance(content, str):
        return content
    tools = [
        {**block, "content": chat.text_of(block.get("content"))}
        for block in content
        if mapping(block).get("type") in ("tool_use", "tool_result")
    ]
    return [*tools, {"type": "text", "text": chat.text_of(content)}]


def _asked(content: Any) -> Any:
    """A user's content without what Claude Code has put there; what is empty says nothing."""
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
    """What a user has typed of a text."""
    rest = parted(text, *_REMINDER)[0]
    rest = text if rest == text else rest.strip()
    return "" if not rest.strip() or _is_command(rest.strip()) else rest


def _is_command(text: str) -> bool:
    """Whether all of a text is what Claude Code writes of a command that it ran by itself."""
    at = 0
    while found := _COMMAND.match(text, at):
        ends = f"</{found[1]}>"
        end = text.find(ends, found.end())
        if end < 0:
            return False
        at = end + len(ends)
        while text[at : at + 1].isspace():
            at += 1
    return 0 < at == len(text)
