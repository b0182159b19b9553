"""Reads Letta's agent files (.af).

An agent's messages become a session, and its memory blocks become notes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from agent_memory.core.messages import content_text
from agent_memory.integrations.imports.conversations import (
    Element,
    Event,
    SessionBegin,
    Skipped,
    SourceMessage,
    SourceNote,
    Unread,
    id_by_place,
    named,
    read_each,
    titled,
)
from agent_memory.integrations.imports.files import SourceFiles
from agent_memory.integrations.imports.json_parts import elements
from agent_memory.integrations.transcripts import Json, dated, listed, mapping, moment, text_in

_LONGEST = 4_000  # maximum characters of a note
_ROLES = {"system", "developer", "user", "assistant", "tool"}


def read_letta(source: SourceFiles) -> Iterator[Event]:
    return read_each(
        source.files("*.af", "*.json"),
        lambda file: read_each(elements(file), partial(_agents, file.stem)),
    )


def _agents(stem: str, part: Element) -> Iterator[Event]:
    where, content = part.where, mapping(part.value)
    agents = content.get("agents")
    # a file of Letta's first releases is one agent with its blocks
    agents = agents if isinstance(agents, list) else [content] if "messages" in content else None
    if agents is None:
        yield Unread(where, "not an agent file of Letta: it has no `agents` and no `messages`")
        return
    at = moment(content.get("updated_at"), content.get("created_at"))
    blocks = [*listed(content.get("blocks")), *listed(content.get("core_memory"))]
    for number, block in enumerate(map(mapping, blocks), 1):
        yield from _block(f"{where}, block {number}", stem, block, at)
    for number, agent in enumerate(agents, 1):
        if isinstance(agent, Mapping):
            yield from _agent(f"{where}, agent {number}", agent, stem)
        else:
            yield Unread(f"{where}, agent {number}", "not an object")


def _block(where: str, stem: str, block: Mapping[str, Any], at: Any) -> Iterator[Event]:
    label, value = str(block.get("label") or "memory"), text_in(block.get("value"))
    if value is None:
        yield Skipped("empty memory blocks")
        return
    own = str(block.get("id") or label)
    at = moment(block.get("updated_at"), block.get("created_at")) or at
    for number, text in enumerate(_pieces(value.strip(), _LONGEST - len(label) - 2)):
        about = {"label": label, "file": stem}
        yield SourceNote(f"{stem}/{own}/{number}", f"{label}: {text}", None, at, where, about)


def _pieces(text: str, longest: int) -> Iterator[str]:
    """Yield the parts of a text, each short enough for a note. Split at line ends if possible."""
    while len(text) > longest:
        cut = text.rfind("\n", 1, longest) + 1 or longest
        yield text[:cut].strip()
        text = text[cut:].strip()
    if text:
        yield text


def _agent(where: str, agent: Mapping[str, Any], stem: str) -> Iterator[Event]:
    own = text_in(agent.get("id"))
    session_id = named("letta", stem, own) if own else named("letta", stem)
    yield SessionBegin(session_id, about=titled(agent.get("name")))
    for number, message in enumerate(listed(agent.get("messages")), 1):
        place = f"{where}, message {number}"
        yield _message(place, session_id, number, mapping(message))


def _message(where: str, session_id: str, number: int, fields: Mapping[str, Any]) -> Event:
    role = text_in(fields.get("role"))
    if role == "approval":
        return Skipped("approvals of tools")
    if role not in _ROLES:
        return Unread(where, f"the role {role!r} is unknown")
    # messages of Letta's first releases have a `text`
    text = content_text(fields.get("content")) or text_in(fields.get("text")) or ""
    own = text_in(fields.get("id")) or id_by_place(number, fields)
    notes = titled(None, model=fields.get("model"))
    message: Json = {"role": role, "content": text, "metadata": notes}
    calls = [call for call in listed(fields.get("tool_calls")) if isinstance(call, dict)]
    if calls and role == "assistant":
        message |= {"content": text or None, "tool_calls": calls}
    if role == "tool":
        message["tool_call_id"] = fields.get("tool_call_id")
    if name := text_in(fields.get("name")):
        message["name"] = name
    if not text and not calls and role != "tool":
        return Skipped("empty messages")
    return SourceMessage(session_id, own, dated(message, moment(fields.get("created_at"))), where)
