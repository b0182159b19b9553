"""LangChain: the database of `SQLChatMessageHistory`, and dumps of `messages_to_dict`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from agent_memory.core.formats.langchain import to_message
from agent_memory.core.formats.registry import LANGCHAIN
from agent_memory.errors import InvalidInput
from agent_memory.integrations.imports.conversations import (
    Begun,
    Event,
    Said,
    Unread,
    id_by_place,
    read_each,
    usable,
)
from agent_memory.integrations.imports.files import (
    OpenFile,
    Row,
    SourceFiles,
    is_database,
    rows,
    tables,
)
from agent_memory.integrations.imports.json_parts import elements, loaded
from agent_memory.integrations.loose import Json, dated, mapping, moment, text_in

_COLUMNS = {"id", "session_id", "message"}


def read(source: SourceFiles) -> Iterator[Event]:
    """Yield the content of a database or a dump; a dump is a session named after its file."""
    if is_database(source):
        yield from _database(source)
        return
    yield from read_each(source.files("*.json"), _file)


def _file(file: OpenFile) -> Iterator[Event]:
    yield Begun(session := usable(file.stem))
    for place, part in enumerate(elements(file.name, file.file), 1):
        if isinstance(part, Unread):
            yield part
        else:
            yield _message(part.where, session, None, part.value, place)


def _database(source: SourceFiles) -> Iterator[Event]:
    """Yield the rows of every table with the right columns; the table's name is configurable."""
    found = [name for name, columns in tables(source.path).items() if set(columns) >= _COLUMNS]
    if not found:
        raise InvalidInput(
            f"{source.path} is not a chat history of LangChain: no table has the columns id, "
            "session_id and message."
        )
    for table in found:
        yield from read_each(rows(source, table, "id"), partial(_row, table, {}))


def _row(table: str, places: dict[str, int], row: Row) -> Iterator[Event]:
    where, values = row
    session = values["session_id"]
    part = loaded(where, str(values["message"]))
    if isinstance(part, Unread):
        yield part
    elif not isinstance(session, str) or not session.strip():
        yield Unread(where, "the message has no session")
    else:
        name = usable(session)
        yield Begun(name)
        places[name] = places.get(name, 0) + 1
        yield _message(where, name, f"{table}-{values['id']}", part.value, places[name])


def _message(where: str, session: str, own: str | None, given: object, place: int) -> Event:
    told = mapping(given)
    data: Mapping[str, Any] = mapping(told.get("data"))
    if not isinstance(told.get("type"), str) or "content" not in data:
        return Unread(
            where, "not a message of LangChain: it has no `type`, or no `data` with content"
        )
    own = own or text_in(data.get("id")) or id_by_place(place, told)
    fields: Json = {"raw": to_message(told), "format": LANGCHAIN}
    more = mapping(data.get("additional_kwargs")), mapping(data.get("response_metadata"))
    at = moment(*(one.get(key) for one in more for key in ("timestamp", "created_at")))
    return Said(session, own, dated(fields, at), where)
