"""Reads chats of LangChain, LlamaIndex and OpenAI's Agents SDK, and JSON lines.

LangChain: the database of `SQLChatMessageHistory`, and dumps of `messages_to_dict`. LlamaIndex: the
file that `SimpleChatStore.persist` writes. The Agents SDK: the database of `SQLiteSession`, with
items of the Responses API. JSON lines: one message in each line, with its session.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import partial
from typing import Any

from agent_memory.core.formats.langchain import to_message
from agent_memory.core.formats.registry import LANGCHAIN, LLAMA_INDEX, RESPONSES
from agent_memory.errors import InvalidInput
from agent_memory.integrations.imports.conversations import (
    Element,
    Event,
    SessionBegin,
    SourceMessage,
    Unread,
    id_by_place,
    read_each,
    usable,
)
from agent_memory.integrations.imports.files import OpenFile, SourceFiles, is_database, rows, tables
from agent_memory.integrations.imports.json_parts import elements, lines, loaded
from agent_memory.integrations.transcripts import Json, dated, listed, mapping, moment, text_in

_HISTORY = {"id", "session_id", "message"}


def _tables(source: SourceFiles, columns: set[str], what: str) -> list[str]:
    """Return the names of the tables with these columns. Users can configure the names."""
    columns_of = tables(source.path) if is_database(source) else {}
    names = [name for name, there in columns_of.items() if columns <= set(there)]
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
