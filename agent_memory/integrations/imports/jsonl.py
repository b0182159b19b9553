"""JSON lines, each a message with its session."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from agent_memory.integrations.imports.conversations import (
    Begun,
    Event,
    Said,
    Unread,
    id_by_place,
    read_each,
    usable,
)
from agent_memory.integrations.imports.files import OpenFile, SourceFiles
from agent_memory.integrations.imports.json_parts import Element, lines
from agent_memory.integrations.loose import dated, moment, text_in

_SESSION = ("session_id", "session", "conversation_id", "thread_id")
_USER = ("user_id", "user")
_TIME = ("created_at", "create_time", "timestamp", "time")


def read(source: SourceFiles) -> Iterator[Event]:
    """Yield the content of a file, or of all files of a folder or a zip."""
    return read_each(source.files("*.jsonl", "*.ndjson"), _file)


def _file(file: OpenFile) -> Iterator[Event]:
    return read_each(lines(file.name, file.file), partial(_line, {}))


def _line(places: dict[str, int], part: Element) -> Iterator[Event]:
    where, line = part
    if not isinstance(line, dict):
        yield Unread(where, 'not an object. Write {"session_id": "...", "role": "user", ...}')
        return
    sessions = [_name(line.pop(key)) for key in _SESSION if key in line]
    session = next((one for one in sessions if one is not None), None)
    if session is None:
        yield Unread(where, "it has no session. Add a `session_id`")
        return
    user = next((_name(line.pop(key)) for key in _USER if key in line), None)
    times = [(key, line.pop(key)) for key in _TIME if line.get(key) is not None]
    at = moment(*(said for _, said in times))
    if times and at is None:
        yield Unread(where, f"its `{times[0][0]}` {str(times[0][1])[:40]!r} is not a time")
        return
    session_id = usable(session)
    yield Begun(session_id, user)
    places[session_id] = places.get(session_id, 0) + 1
    own = _name(line.pop("id", None)) or id_by_place(places[session_id], line)
    yield Said(session_id, own, dated(line, at), where)


def _name(value: object) -> str | None:
    """Return an id: a text or a number."""
    return str(value) if type(value) is int else text_in(value)
