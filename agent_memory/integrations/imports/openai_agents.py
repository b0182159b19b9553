"""OpenAI's Agents SDK: the database of its `SQLiteSession`, items of the Responses API."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from agent_memory.core.formats.registry import RESPONSES
from agent_memory.errors import InvalidInput
from agent_memory.integrations.imports.conversations import (
    Begun,
    Event,
    Said,
    Unread,
    read_each,
    usable,
)
from agent_memory.integrations.imports.files import Row, SourceFiles, is_database, rows, tables
from agent_memory.integrations.imports.json_parts import loaded
from agent_memory.integrations.loose import dated, moment

_COLUMNS = {"id", "session_id", "message_data", "created_at"}


def read(source: SourceFiles) -> Iterator[Event]:
    """Yield the content of the database; the tables' names are configurable."""
    found = tables(source.path) if is_database(source) else {}
    names = [name for name, columns in found.items() if set(columns) >= _COLUMNS]
    if not names:
        raise InvalidInput(
            f"{source.path} is not a database of the Agents SDK's SQLiteSession: it has no table "
            "such as agent_messages, with the columns session_id and message_data."
        )
    for table in names:
        yield from read_each(rows(source, table, "id"), partial(_row, table))


def _row(table: str, found: Row) -> Iterator[Event]:
    where, row = found
    part = loaded(where, str(row["message_data"]))
    if isinstance(part, Unread):
        yield part
        return
    if not isinstance(part.value, dict):
        yield Unread(where, "not an item of the Responses API: it is not an object")
        return
    session = usable(str(row["session_id"]))
    yield Begun(session)
    own = f"{table}-{row['id']}"
    fields = {"raw": part.value, "format": RESPONSES}
    yield Said(session, own, dated(fields, moment(row["created_at"])), where)
