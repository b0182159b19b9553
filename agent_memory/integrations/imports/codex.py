"""Reads Codex's sessions: `~/.codex/sessions/**/rollout-*.jsonl`, items of the Responses API."""

from __future__ import annotations

from collections.abc import Iterator

from agent_memory.core.formats.registry import RESPONSES
from agent_memory.integrations.imports.conversations import (
    Event,
    SessionBegin,
    Skipped,
    SourceMessage,
    Unread,
    id_by_place,
    named,
    read_each,
    titled,
)
from agent_memory.integrations.imports.files import OpenFile, SourceFiles
from agent_memory.integrations.imports.json_parts import lines
from agent_memory.integrations.transcripts import (
    ITEM,
    Json,
    dated,
    is_said,
    item_of,
    moment,
    text_in,
)

FORMAT = "codex.item"
"""The format of items that neither the user nor the model wrote. They are stored unchanged."""

_OWN = ("ghost_snapshot", "other")


def read_codex(source: SourceFiles) -> Iterator[Event]:
    return read_each(source.files("rollout-*.jsonl"), _session)


def _session(file: OpenFile) -> Iterator[Event]:
    session_id = named("codex", file.stem)
    place, is_named = 0, False
    for part in lines(file):
        if isinstance(part, Unread):
            yield part
            continue
        if not isinstance(part.value, dict):
            yield Unread(part.where, "not an object")
            continue
        kind, payload = item_of(part.value)
        if kind == "session_meta":
            if not place and not is_named and (own := text_in(payload.get("id"))):
                session_id, is_named = named("codex", own), True
                yield SessionBegin(session_id, about=titled(None, folder=payload.get("cwd")))
        elif kind != ITEM:
            yield Skipped(f"lines of the type {kind[:40]!r}")
        elif not text_in(payload.get("type")):
            yield Unread(part.where, "the item has no type")
        else:
            yield SessionBegin(session_id)
            place += 1
            at = moment(part.value.get("timestamp"))
            own, fields = id_by_place(place, payload), dated(_message(payload), at)
            yield SourceMessage(session_id, own, fields, part.where)


def _message(item: Json) -> Json:
    """Return an item as a message. Codex's own instructions do not become a system message."""
    if is_said(item) and item["type"] not in _OWN:
        return {"raw": item, "format": RESPONSES}
    return {"raw": {"item": item}, "format": FORMAT}
