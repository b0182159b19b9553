"""Read and write conversations as JSON lines, for `import`, `demo --file` and `export`."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_memory.errors import InvalidInput, InvalidMessage

if TYPE_CHECKING:
    from agent_memory.core.messages import Message
    from agent_memory.core.records import Entry

_NOTES = ("id", "session_id")
_LONGEST = 2**28
_BOM = b"\xef\xbb\xbf"


def read_lines(path: Path) -> list[tuple[int, Message]]:
    """Read all messages of a file, each with its line's number. Blank lines are skipped.

    A line is an object in the form of an OpenAI chat message. The object's `created_at`,
    `create_time` or `timestamp` is the message's time. Its `id` and `session_id` go into the
    message's metadata.

    Raises:
        InvalidInput: A line is longer than 256 MiB, or is not a message. The error then has the
            line's number. The error is also raised if the file has no messages.
    """
    from agent_memory.integrations.imports.conversations import Unread
    from agent_memory.integrations.imports.json_parts import loaded

    messages: list[tuple[int, Message]] = []
    with path.open("rb") as file:
        for number, raw in enumerate(iter(partial(file.readline, _LONGEST + 1), b""), 1):
            where = f"{path.name}, line {number}"
            if len(raw) > _LONGEST:
                text = f"longer than {_LONGEST:,} bytes. Write one message a line."
                raise InvalidInput(f"{where}: {text}")
            if not raw.removeprefix(_BOM).strip():
                continue
            read = loaded(where, raw)
            if isinstance(read, Unread):
                raise InvalidInput(f"{read}.")
            try:
                messages.append((number, _message(read.value)))
            except InvalidMessage as error:
                raise InvalidInput(f"{where}: {error}") from None
    if not messages:
        raise InvalidInput(f"{path.name} has no messages. Write one JSON object per line.")
    return messages


def write_line(entry: Entry) -> bytes:
    fields = {**entry.message.to_dict(), "created_at": entry.said_at.isoformat()}
    try:
        return json.dumps(fields, ensure_ascii=False).encode() + b"\n"
    except UnicodeEncodeError:  # lone surrogates are valid JSON only when escaped
        return json.dumps(fields).encode() + b"\n"


def _message(fields: Any) -> Message:
    from agent_memory.core.messages import Message
    from agent_memory.core.timestamps import TIMES, parse_time

    if not isinstance(fields, dict):
        raise InvalidMessage('not an object. Write {"role": "user", "content": "..."}.')
    fields = dict(fields)
    for key in TIMES:
        time = fields.get(key)
        if fields.get("created_at") is None and time is not None and parse_time(time) is None:
            raise InvalidMessage(
                f"the message's `{key}` {time!r} is not a time. Use epoch seconds, or ISO 8601 "
                'such as "2026-03-01T12:00:00+00:00".'
            )
    notes = {key: fields.pop(key) for key in _NOTES if key in fields}
    metadata = fields.get("metadata")
    if notes and (metadata is None or isinstance(metadata, dict)):
        fields["metadata"] = {**notes, **(metadata or {})}
    return Message.of(fields)
