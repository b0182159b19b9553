"""OpenAI's Agents SDK: the database of its `SQLiteSession`, items of the Responses API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from agent_memory.core.formats.registry import RESPONSES
from agent_memory.errors import InvalidInput
from agent_memory.integrations.imports.chats import (
    Begun,
    Event,
    Json,
    Said,
    Unread,
    dated,
    moment,
    titled,
    usable,
)
from agent_memory.integrations.imports.files import SourceFiles
from agent_memory.integrations.imports.json_parts import loaded
from agent_memory.integrations.imports.tables import is_database, rows, tables

_COLUMNS = {"id", "session_id", "message_data", "created_at"}


def read(source: SourceFiles) -> Iterator[Event]:
    """What the database holds, whatever its tables are called: that is an argument of the class."""
    found = tables(source.path) if is_database(source) else {}
    names = [name for name, columns in found.items() if set(columns) >= _COLUMNS]
    if not names:
        raise InvalidInput(
            f"{source.path} is no database of the Agents SDK's SQLiteSession: it has no table such "
            "as agent_messages, with the columns session_id and message_data."
        )
    for table in names:
        begun: set[str] = set()
        for row in rows(source, table, "id"):
            if isinstance(row, Unread):
                yield row
            else:
                yield from _row(table, *row, begun)


def _row(table: str, where: str, row: Mapping[str, Any], begun: set[str]) -> Iterator[Event]:
    part = loaded(where, str(row["message_data"]))
    if isinstance(part, Unread):
        yield part
        return
    if not isinstance(part.value, dict):
        yield Unread(where, "no item of the Responses API: not an object")
        return
    session = usable(str(row["session_id"]))
    if session not in begun:
        begun.add(session)
        yield Begun(session, about=titled(None, source="openai-agents"))
    own = f"{table}-{row['id']}"
    notes: Json = {"id": own, "source": "openai-agents"}
    fields: Json = {"raw": part.value, "format": RESPONSES, "metadata": notes}
    yield Said(session, own, dated(fields, moment(row["created_at"])), where)
