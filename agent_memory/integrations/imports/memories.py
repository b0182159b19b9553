"""Reads the memories of mem0 and Letta.

mem0: results of `get_all` or `history` as JSON, or the history's database. A memory becomes a note
of its user. The import uses only the last event of a memory's history. The database's messages
become sessions. Letta: agent files (.af). An agent's messages become a session, and its memory
blocks become notes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import chain
from typing import Any
from urllib.parse import unquote

from agent_memory.core.messages import content_text
from agent_memory.errors import InvalidInput
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
from agent_memory.integrations.imports.files import SourceFiles, is_database, rows, tables
from agent_memory.integrations.imports.json_parts import elements
from agent_memory.integrations.transcripts import Json, dated, listed, mapping, moment, text_in

_WHOSE = ("user_id", "agent_id", "run_id")


def read_mem0(source: SourceFiles) -> Iterator[Event]:
    if is_database(source):
        yield from _database(source)
        return
    yield from read_each(source.files("*.json"), lambda file: _memories(_flat(elements(file))))


def _flat(parts: Iterable[Element | Unread]) -> Iterator[Element | Unread]:
    """Yield single memories. A part is one memory, or an object with `results` or `memories`."""
    for part in parts:
        value = mapping(part.value) if isinstance(part, Element) else {}
        lists = [value[key] for key in ("results", "memories") if isinstance(value.get(key), list)]
        if not lists:
            yield part
            continue
        inner = enumerate(chain(*lists), 1)
        yield from (Element(f"{part.where}, memory {n}", item) for n, item in inner)


def _memories(parts: Iterable[Element | Unread]) -> Iterator[Event]:
    changes: dict[str, tuple[str, Mapping[str, Any], object]] = {}
    for part in parts:
        if isinstance(part, Unread):
            yield part
        elif (memory_id := text_in(mapping(part.value).get("memory_id"))) is not None:
            changes[memory_id] = _newer(changes.get(memory_id), part.where, part.value)
        else:
            yield _memory(part.where, mapping(part.value))
    for memory_id, (where, event, begun) in changes.items():
        if str(event.get("event")).upper() == "DELETE" or event.get("is_deleted") in (1, True):
            yield Skipped("memories that were deleted")
            continue
        text = text_in(event.get("new_memory"))
        if text is None:
            yield Unread(where, "the memory has no current text")
            continue
        at = moment(event.get("updated_at"), event.get("created_at"), begun)
        yield SourceNote(memory_id, text, text_in(event.get("user_id")), at, where)


def _memory(where: str, entry: Mapping[str, Any]) -> Event:
    text = text_in(entry.get("memory")) or text_in(entry.get("data"))
    own = text_in(entry.get("id"))
    if text is None or own is None:
        return Unread(where, "not a memory of mem0: it has no `id`, or no `memory`")
    metadata = entry.get("metadata")
    about: Json = {key: entry[key] for key in ("agent_id", "run_id", "actor_id") if entry.get(key)}
    about |= {"metadata": metadata} if isinstance(metadata, dict) and metadata else {}
    at = moment(entry.get("updated_at"), entry.get("created_at"))
    return SourceNote(own, text, text_in(entry.get("user_id")), at, where, about)


def _newer(
    before: tuple[str, Mapping[str, Any], object] | None, where: str, event: Mapping[str, Any]
) -> tuple[str, Mapping[str, Any], object]:
    """Return the later event of a memory, with its place and the memory's creation time."""
    if before is None:
        return where, event, event.get("created_at")
    times = [moment(item.get("updated_at"), item.get("created_at")) for item in (before[1], event)]
    if times[0] is not None and times[1] is not None and times[1] < times[0]:
        return before
    return where, event, before[2]


def _database(source: SourceFiles) -> Iterator[Event]:
    columns_of = tables(source.path)
    if not {"history", "messages"} & columns_of.keys():
        raise InvalidInput(f"{source.path} is not a database of mem0: it has no table `history`.")
    if "history" in columns_of:
        yield from _memories(rows(source, "history", "rowid"))
    if "messages" in columns_of:
        yield from read_each(rows(source, "messages", "created_at, rowid"), _mem0_message)


def _mem0_message(element: Element) -> Iterator[Event]:
    where, row = element
    scope, role, content = row.get("session_scope"), row.get("role"), row.get("content")
    if not isinstance(scope, str) or not isinstance(role, str) or not isinstance(content, str):
        yield Unread(where, "the message lacks a scope, a role or a content")
        return
    named_so = (part.partition("=") for part in scope.split("&"))
    whose = {name: unquote(value) for name, _, value in named_so if name in _WHOSE and value}
    session_id, own = named("mem0", scope), str(row.get("id"))
    yield SessionBegin(session_id, whose.get("user_id"), titled(None, **whose))
    message: Json = {"role": role, "content": content}
    if name := text_in(row.get("name")):
        message["name"] = name
    yield SourceMessage(session_id, own, dated(message, moment(row.get("created_at"))), where)


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
        yield _letta_message(place, session_id, number, mapping(message))


def _letta_message(where: str, session_id: str, number: int, fields: Mapping[str, Any]) -> Event:
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
