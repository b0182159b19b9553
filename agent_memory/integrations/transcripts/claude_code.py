"""Lines of Claude Code's transcripts, as chat messages. Pure.

Anthropic calls the form of these files internal: what is not known here is passed over.
"""

from __future__ import annotations

import json
import re
from typing import Any

from agent_memory.integrations.transcripts.own import parted, without_ours

_NOT_SAID = ("isSidechain", "isMeta", "isCompactSummary", "isApiErrorMessage")
_REMINDER = ("<system-reminder>", "</system-reminder>")
_COMMAND = re.compile(r"<((?:command|local-command|bash)-\w+)>")


def messages(record: dict[str, Any], place: str) -> list[dict[str, Any]]:
    """What one line says: none, one, or a result of each tool and what the user said with them.

    Left out are a subagent's lines, thinking, summaries of a compaction, reminders and what a hook
    added. An image is named, not kept.

    Args:
        record: The line.
        place: Names the line where it has no id of its own.
    """
    said = record.get("message")
    if record.get("type") not in ("user", "assistant") or not isinstance(said, dict):
        return []
    if any(record.get(mark) for mark in _NOT_SAID):
        return []
    content = said.get("content")
    blocks = content if isinstance(content, list) else [{"type": "text", "text": content}]
    blocks = [block for block in blocks if isinstance(block, dict)]
    found = _answered(blocks) if record["type"] == "assistant" else _asked(blocks)
    name = record.get("uuid")
    name = name if isinstance(name, str) and name else place
    dated = {"created_at": record["timestamp"]} if record.get("timestamp") else {}
    return [{**one, "id": f"{name}.{n}" if n else name, **dated} for n, one in enumerate(found)]


def text_of(content: Any) -> str:
    """The text of a content; what is no text is named."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    parts = [
        part.get("text") if part.get("type") in _TEXTS else f"[{part.get('type')}]"
        for part in content
        if isinstance(part, dict) and part.get("type") not in _SILENT
    ]
    return "\n".join(part for part in parts if isinstance(part, str) and part)


_TEXTS = ("text", "input_text", "output_text")
_SILENT = ("thinking", "redacted_thinking", "tool_use", "tool_result", "tool_reference")


def _answered(blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    text = without_ours(text_of(blocks)).strip()
    calls = [
        call_of(block.get("id"), block.get("name"), block.get("input"))
        for block in blocks
        if block.get("type") == "tool_use"
    ]
    if calls:
        return [{"role": "assistant", "content": text or None, "tool_calls": calls}]
    return [{"role": "assistant", "content": text}] if text else []


def call_of(name: Any, tool: Any, given: Any) -> dict[str, Any]:
    """A call of a tool in OpenAI's form."""
    arguments = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
    function = {"name": str(tool), "arguments": without_ours(arguments)}
    return {"id": str(name), "type": "function", "function": function}


def _asked(blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    results = [
        {
            "role": "tool",
            "tool_call_id": str(block.get("tool_use_id")),
            "content": without_ours(text_of(block.get("content"))),
        }
        for block in blocks
        if block.get("type") == "tool_result"
    ]
    text = parted(without_ours(text_of(blocks)), *_REMINDER)[0].strip()
    text = "" if _is_command(text) else text
    return [*results, {"role": "user", "content": text}] if text else results


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
