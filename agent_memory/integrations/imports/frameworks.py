"""Reads data of LangChain, LlamaIndex, OpenAI's Agents SDK, mem0 and Letta, and JSON lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from functools import partial
from itertools import chain
from typing import Any
from urllib.parse import unquote

from agent_memory.core.formats.langchain import to_message
from agent_memory.core.formats.neutral import mapping
from agent_memory.core.formats.registry import LANGCHAIN, LLAMA_INDEX, RESPONSES
from agent_memory.core.messages import content_text
from agent_memory.core.transcript import split
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
    usable,
)
from agent_memory.integrations.imports.files import (
    OpenFile,
    SourceFiles,
    elements,
    is_database,
    lines,
    loaded,
    rows,
    tables,
)
from agent_memory.integrations.transcripts import Json, dated, listed, moment, text_in

_HISTORY = {"id", "session_id", "message"}


def _tables(source: SourceFiles, columns: set[str], what: str) -> list[str]:
    """Return the names of the tables with these columns. Users can configure the names."""
    columns_of = tables(source.path) if is_database(source) else {}
    names = [name for name, existing in columns_of.items() if columns <= set(existing)]
    if not names:
        wanted = ", ".join(sorted(columns))
        raise InvalidInput(f"{source.path} is not {what}: no table has the columns {wanted}.")
    return names


def read_langchain(source: SourceFiles) -> Iterator[Event]:
    """Yield the content of a database or of dumps. A dump is one session, named after its path."""
    if not is_database(source):
        yield from read_each(source.files("*.json"), _dump)
        return
    for table in _tables(source, _HISTORY, "a chat history of LangChain"):
        yield from read_each(rows(source, table, "id"), partial(_history_row, table))


def _dump(file: OpenFile) -> Iterator[Event]:
    yield SessionBegin(session := usable(file.name.rpartition(".")[0] or file.name))
    for place, part in enumerate(elements(file), 1):
        if isinstance(part, Unread):
            yield part
        else:
            yield _of_langchain(part.where, session, None, part.value, place)


def _history_row(table: str, row: Element) -> Iterator[Event]:
    where, values = row
    session = values["session_id"]
    part = loaded(where, str(values["message"]))
    if isinstance(part, Unread):
        yield part
    elif not isinstance(session, str) or not session.strip():
        yield Unread(where, "the message has no session")
    else:
        name = usable(session)
        yield SessionBegin(name)
        yield _of_langchain(where, name, f"{table}-{values['id']}", part.value)


def _of_langchain(where: str, session: str, own: str | None, item: object, place: int = 0) -> Event:
    message = mapping(item)
    data: Mapping[str, Any] = mapping(message.get("data"))
    if not isinstance(message.get("type"), str) or "content" not in data:
        reason = "not a message of LangChain: it has no `type`, or no `data` with content"
        return Unread(where, reason)
    own = own or text_in(data.get("id")) or id_by_place(place, message)
    fields: Json = {"raw": to_message(message), "format": LANGCHAIN}
    more = mapping(data.get("additional_kwargs")), mapping(data.get("response_metadata"))
    at = moment(*(part.get(key) for part in more for key in ("timestamp", "created_at")))
    return SourceMessage(session, own, dated(fields, at), where)


def read_llama_index(source: SourceFiles) -> Iterator[Event]:
    return read_each(source.files("*.json"), lambda file: read_each(elements(file), _store))


def _store(part: Element) -> Iterator[Event]:
    store = mapping(part.value).get("store")
    if not isinstance(store, Mapping):
        yield Unread(part.where, "not a chat store of LlamaIndex: it has no `store`")
        return
    for key, messages in store.items():
        session = usable(key or "default")
        yield SessionBegin(session)
        for place, message in enumerate(listed(messages), 1):
            where = f"{part.where}, key {key!r}, message {place}"
            yield _of_llama_index(where, session, message, place)


def _of_llama_index(where: str, session: str, value: object, place: int) -> Event:
    raw = dict(mapping(value))
    if not isinstance(raw.get("role"), str):
        return Unread(where, "not a message of LlamaIndex: it has no `role`")
    own = id_by_place(place, raw)
    more: Mapping[str, Any] = mapping(raw.get("additional_kwargs"))
    if not isinstance(raw.get("blocks"), list):  # before LlamaIndex 0.12, messages had only a text
        raw["blocks"] = [{"block_type": "text", "text": str(raw.pop("content", None) or "")}]
    fields: Json = {"raw": raw, "format": LLAMA_INDEX}
    at = moment(more.get("timestamp"), more.get("created_at"))
    return SourceMessage(session, own, dated(fields, at), where)


_ITEMS = {"id", "session_id", "message_data", "created_at"}


def read_openai_agents(source: SourceFiles) -> Iterator[Event]:
    for table in _tables(source, _ITEMS, "a database of the Agents SDK's SQLiteSession"):
        yield from read_each(rows(source, table, "id"), partial(_item_row, table))


def _item_row(table: str, element: Element) -> Iterator[Event]:
    where, row = element
    part = loaded(where, str(row["message_data"]))
    if isinstance(part, Unread):
        yield part
        return
    if not {"type", "role"} & mapping(part.value).keys():  # such as an item of EncryptedSession
        yield Unread(where, "not an item of the Responses API: it has no `type` and no `role`")
        return
    session = usable(str(row["session_id"]))
    yield SessionBegin(session)
    own = f"{table}-{row['id']}"
    fields = {"raw": part.value, "format": RESPONSES}
    yield SourceMessage(session, own, dated(fields, moment(row["created_at"])), where)


_SESSION = ("session_id", "session", "conversation_id", "thread_id")
_USER = ("user_id", "user")
_TIME = ("created_at", "create_time", "timestamp", "time")

_Places = dict[tuple[str, bool], tuple[datetime | None, int]]
"""The last time of a session's messages, and its number of messages at this time. Messages without
a time are counted separately."""


def read_jsonl(source: SourceFiles) -> Iterator[Event]:
    read = partial(_line, {})
    return read_each(source.files("*.jsonl", "*.ndjson"), lambda file: read_each(lines(file), read))


def _line(places: _Places, part: Element) -> Iterator[Event]:
    where, line = part
    if not isinstance(line, dict):
        yield Unread(where, 'not an object. Write {"session_id": "...", "role": "user", ...}')
        return
    sessions = [_name(line.pop(key)) for key in _SESSION if key in line]
    session = next((name for name in sessions if name is not None), None)
    if session is None:
        yield Unread(where, "it has no session. Add a `session_id`")
        return
    user = next((_name(line.pop(key)) for key in _USER if key in line), None)
    times = [(key, line.pop(key)) for key in _TIME if line.get(key) is not None]
    at = moment(*(value for _, value in times))
    if times and at is None:
        yield Unread(where, f"its `{times[0][0]}` {str(times[0][1])[:40]!r} is not a time")
        return
    session_id = usable(session)
    yield SessionBegin(session_id, user)
    last, place = places.get((session_id, at is None), (at, 0))
    place = place + 1 if last == at else 1
    places[session_id, at is None] = at, place
    name, message = _name(line.pop("id", None)), dated(line, at)
    own = name or id_by_place(place, message)
    yield SourceMessage(session_id, own, message, where, user_id=user)


def _name(value: object) -> str | None:
    """Return an id as text; None if the value is neither a non-blank text nor an integer."""
    return str(value) if type(value) is int else text_in(value)


_ID_FIELDS = ("user_id", "agent_id", "run_id")


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
    ids = {name: unquote(value) for name, _, value in named_so if name in _ID_FIELDS and value}
    session_id, own = named("mem0", scope), str(row.get("id"))
    yield SessionBegin(session_id, ids.get("user_id"), titled(None, **ids))
    message: Json = {"role": role, "content": content}
    if name := text_in(row.get("name")):
        message["name"] = name
    yield SourceMessage(session_id, own, dated(message, moment(row.get("created_at"))), where)


_LONGEST = 4_000  # maximum characters of a note
_ROLES = {"system", "developer", "user", "assistant", "tool"}
_EVENTS = {"heartbeat", "login", "system_alert"}  # what Letta writes with the role `user`


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
    longest = max(_LONGEST // 2, _LONGEST - len(label) - 1)  # a note with a longer label is refused
    for number, text in enumerate(split(value.strip(), len, longest)):
        about = {"label": label, "file": stem}
        name = f"{stem}/{own}/{number}"
        yield SourceNote(name, f"{label}: {text.strip()}", None, at, where, about)


def _agent(where: str, agent: Mapping[str, Any], stem: str) -> Iterator[Event]:
    own = text_in(agent.get("id"))
    session_id = named("letta", stem, own) if own else named("letta", stem)
    yield SessionBegin(session_id, about=titled(agent.get("name")))
    answers: set[str] = set()
    for number, message in enumerate(listed(agent.get("messages")), 1):
        place = f"{where}, message {number}"
        yield _letta_message(place, session_id, number, mapping(message), answers)


def _letta_message(
    where: str, session_id: str, number: int, fields: Mapping[str, Any], answers: set[str]
) -> Event:
    """Return a message. `answers` has the ids of the calls that told the user something."""
    role = text_in(fields.get("role"))
    if role == "approval":
        return Skipped("approvals of tools")
    if role not in _ROLES:
        return Unread(where, f"the role {role!r} is unknown")
    if role == "tool" and str(fields.get("tool_call_id")) in answers:
        return Skipped("results of send_message")
    # messages of Letta's first releases have a `text`
    text = content_text(fields.get("content")) or text_in(fields.get("text")) or ""
    own = text_in(fields.get("id")) or id_by_place(number, fields)
    notes = titled(None, model=fields.get("model"))
    packed = _object(text) if role == "user" else {}
    if packed.get("type") in _EVENTS:
        return Skipped("events of Letta")
    if packed.get("type") == "user_message":
        text = text_in(packed.get("message")) or text
    calls: list[Json] = []
    for call in listed(fields.get("tool_calls")) if role == "assistant" else []:
        function = mapping(mapping(call).get("function"))
        said = text_in(_object(function.get("arguments")).get("message"))
        if function.get("name") == "send_message" and said:
            answers.add(str(call.get("id")))
            text = f"{text}\n{said}".strip()
        elif isinstance(call, dict):
            calls.append(call)
    message: Json = {"role": role, "content": text, "metadata": notes}
    if calls:
        message |= {"content": text or None, "tool_calls": calls}
    if role == "tool":
        message["tool_call_id"] = fields.get("tool_call_id")
    if name := text_in(fields.get("name")):
        message["name"] = name
    if not text and not calls and role != "tool":
        return Skipped("empty messages")
    return SourceMessage(session_id, own, dated(message, moment(fields.get("created_at"))), where)


def _object(text: object) -> Mapping[str, Any]:
    """Return the object that a text is in JSON; an empty one for any other value."""
    return mapping(getattr(loaded("", str(text)), "value", None))
