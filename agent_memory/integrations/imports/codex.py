"""Codex's sessions: `~/.codex/sessions/**/rollout-*.jsonl`, items of OpenAI's Responses API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from agent_memory.core.formats.registry import RESPONSES
from agent_memory.integrations.imports.chats import (
    Begun,
    Event,
    Json,
    Omitted,
    Said,
    Unread,
    dated,
    id_by_place,
    mapping,
    moment,
    named,
    text_in,
    titled,
)
from agent_memory.integrations.imports.files import OpenFile, SourceFiles
from agent_memory.integrations.imports.json_parts import lines

FORMAT = "codex.item"
"""The format of items that no chat shows: kept as they are."""

_OWN = ("ghost_snapshot", "other")
_FIRST = (
    *("message", "reasoning", "local_shell_call", "function_call", "function_call_output"),
    *("custom_tool_call", "custom_tool_call_output", "web_search_call"),
)
"""Items that the first releases wrote, each as a line of its own."""

_SURROUNDINGS = ("<environment_context>", "<user_instructions>", "# AGENTS.md instructions")
"""What Codex tells the model in a user's name before anybody has spoken."""


def read(source: SourceFiles) -> Iterator[Event]:
    """What a session's file holds, or all of a folder."""
    for file in source.files("rollout-*.jsonl"):
        if isinstance(file, Unread):
            yield file
        else:
            yield from _session(file)


def _session(file: OpenFile) -> Iterator[Event]:
    session_id = named("codex", file.name.rpartition("/")[2].removesuffix(".jsonl"))
    begun, place = False, 0
    for part in lines(file.name, file.file):
        if isinstance(part, Unread):
            yield part
            continue
        if not isinstance(part.value, dict):
            yield Unread(part.where, "not an object")
            continue
        kind, payload = _kind(part.value)
        if kind == "session_meta":
            if not begun and (own := text_in(payload.get("id"))):
                about = titled(None, source="codex", folder=payload.get("cwd"))
                session_id, begun = named("codex", own), True
                yield Begun(session_id, about=about)
        elif kind != "response_item":
            yield Omitted(f"lines of the type {kind[:40]!r}")
        elif not text_in(payload.get("type")):
            yield Unread(part.where, "an item without a type")
        else:
            if not begun:
                begun = True
                yield Begun(session_id, about=titled(None, source="codex"))
            place += 1
            own = id_by_place(place, payload)
            notes: Json = {"id": own, "source": "codex"}
            fields = _message(payload, notes)
            yield Said(
                session_id, own, dated(fields, moment(part.value.get("timestamp"))), part.where
            )


def _kind(line: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """The type of a line, and what it carries; the first releases wrote items as they are."""
    payload = line.get("payload")
    if isinstance(payload, Mapping):
        return str(line.get("type")), payload
    if "type" not in line and "id" in line:
        return "session_meta", line
    if line.get("type") in _FIRST:
        return "response_item", line
    return str(line.get("type") or line.get("record_type")), {}


def _message(item: Mapping[str, Any], notes: Json) -> Json:
    """An item as it is. What Codex tells the model sets no system message of the session."""
    raw = dict(item)
    content = raw.get("content")
    texts = (
        [str(mapping(one).get("text") or "") for one in content]
        if isinstance(content, list)
        else []
    )
    is_told = bool(texts) and texts[0].lstrip().startswith(_SURROUNDINGS)
    if is_told or raw.get("role") in ("developer", "system") or raw["type"] in _OWN:
        return {"raw": {"item": raw}, "format": FORMAT, "metadata": notes}
    return {"raw": raw, "format": RESPONSES, "metadata": notes}
