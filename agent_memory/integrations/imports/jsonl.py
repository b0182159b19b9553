"""Plain lines of JSON, each a message with the session that it is of."""

from __future__ import annotations

from collections.abc import Iterator

from agent_memory.integrations.imports.chats import (
    Begun,
    Event,
    Json,
    Said,
    Unread,
    dated,
    id_by_place,
    mapping,
    moment,
    text_in,
    titled,
    usable,
)
from agent_memory.integrations.imports.files import OpenFile, SourceFiles
from agent_memory.integrations.imports.json_parts import lines

_SESSION = ("session_id", "session", "conversation_id", "thread_id")
_USER = ("user_id", "user")
_TIME = ("created_at", "create_time", "timestamp", "time")


def read(source: SourceFiles) -> Iterator[Event]:
    """What a file holds, or all files of a folder or a zip."""
    for file in source.files("*.jsonl", "*.ndjson"):
        if isinstance(file, Unread):
            yield file
        else:
            yield from _file(file)


def _file(file: OpenFile) -> Iterator[Event]:
    places: dict[str, int] = {}
    for part in lines(file.name, file.file):
        if isinstance(part, Unread):
            yield part
        elif not isinstance(part.value, dict):
            yield Unread(
                part.where, 'not an object. Write {"session_id": "...", "role": "user", ...}'
            )
        else:
            yield from _line(part.where, dict(part.value), places)


def _line(where: str, line: Json, places: dict[str, int]) -> Iterator[Event]:
    sessions = [_name(line.pop(key)) for key in _SESSION if key in line]
    session = next((one for one in sessions if one is not None), None)
    if session is None:
        yield Unread(where, "it names no session. Give it a `session_id`")
        return
    user = next((_name(line.pop(key)) for key in _USER if key in line), None)
    times = [(key, line.pop(key)) for key in _TIME if line.get(key) is not None]
    at = moment(*(said for _, said in times))
    if times and at is None:
        yield Unread(where, f"its `{times[0][0]}` {str(times[0][1])[:40]!r} is no time")
        return
    session_id = usable(session)
    if session_id not in places:
        yield Begun(session_id, user, titled(None, source="jsonl"))
    places[session_id] = places.get(session_id, 0) + 1
    own = _name(line.pop("id", None)) or id_by_place(places[session_id], line)
    notes = {**mapping(line.pop("metadata", None)), "id": own, "source": "jsonl"}
    yield Said(session_id, own, dated({**line, "metadata": notes}, at), where)


def _name(value: object) -> str | None:
    """An id: a text, or a number."""
    return str(value) if type(value) is int else text_in(value)
