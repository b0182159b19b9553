"""Stores the new part of a transcript."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import Any

from agent_memory.engine.memory import AgentMemory
from agent_memory.errors import Conflict, InvalidInput, InvalidMessage
from agent_memory.integrations.hooks.events import Event
from agent_memory.integrations.transcripts import (
    Line,
    chat_messages,
    claude_code_messages,
    codex_messages,
    cursor_messages,
    lines_from,
    without_ours,
)

logger = logging.getLogger(__name__)

READERS = {"claude-code": claude_code_messages, "codex": codex_messages, "cursor": cursor_messages}

_NAMESPACE = ("hooks", "read")
_BATCH = 200  # messages in one call of `update`
_BATCH_BYTES = 4 * 1024 * 1024
Messages = list[dict[str, Any]]


def store(memory: AgentMemory, event: Event, user_id: str, until: float | None = None) -> int:
    """Store the new part of a session's transcript. Return the number of messages in it.

    For Gemini CLI, store the turn of the event. Message ids derive from the transcript, so that
    concurrent or interrupted hooks store nothing twice. The position in the transcript is a value
    of the user. A deletion of the session keeps this value, so only new messages are stored then.

    Args:
        until: The time at which to stop, on the clock of `time.monotonic`; None for no limit. The
            next call stores the remaining messages.
    """
    if event.agent == "gemini-cli":
        messages = _turn(event)
        _append(memory, event, user_id, messages)
        return len(messages)
    if not event.transcript:
        raise InvalidInput("The event names no transcript, so no message can be stored.")
    path = Path(event.transcript).expanduser()
    values = memory.values(user_id)
    stored = values.get(_NAMESPACE, event.session_id)
    state = stored.value if stored is not None else {}
    offset = state.get("offset", 0) if state.get("path") == str(path) else 0
    count = 0
    for messages, end in _batches(event, lines_from(path, offset)):
        _append(memory, event, user_id, messages)
        values.put(_NAMESPACE, event.session_id, {"path": str(path), "offset": end})
        count += len(messages)
        if until is not None and monotonic() > until:
            break
    return count


def _turn(event: Event) -> Messages:
    """Return an event's question and answer: Gemini CLI changes lines of its transcripts later."""
    turn = [
        {"role": "user", "content": without_ours(event.prompt)},
        {"role": "assistant", "content": event.reply},
    ]
    own = json.dumps([event.at, event.prompt, event.reply])
    return chat_messages(turn, hashlib.sha256(own.encode()).hexdigest()[:32], event.at)


def _batches(event: Event, lines: Iterator[Line]) -> Iterator[tuple[Messages, int]]:
    read = READERS[event.agent]
    batch: Messages = []
    size = end = 0
    for line in lines:
        end = line.end
        record = line.record()
        if record is not None:
            batch += read(record, _place(event.agent, line))
            size += len(line.raw)
        if len(batch) >= _BATCH or size >= _BATCH_BYTES:
            yield batch, end
            batch, size = [], 0
    if end:
        yield batch, end


def _place(agent: str, line: Line) -> str:
    """Return an id for a line, from its content and, for Cursor, its position."""
    where = str(line.start) if agent == "cursor" else ""
    return hashlib.sha256(where.encode() + line.raw).hexdigest()[:32]


def _append(memory: AgentMemory, event: Event, user_id: str, messages: Messages) -> None:
    begins = memory.head(event.session_id, user_id=user_id) is None
    if not messages:
        return
    try:
        memory.update(event.session_id, messages, user_id=user_id)
    except (Conflict, InvalidMessage):
        _one_by_one(memory, event, user_id, messages)
    if begins:
        about = {"agent": event.agent, "cwd": event.cwd}
        memory.describe(event.session_id, about, user_id=user_id)


def _one_by_one(memory: AgentMemory, event: Event, user_id: str, messages: Messages) -> None:
    """Store messages one by one, so that an invalid message does not block the others."""
    for message in messages:
        try:
            memory.update(event.session_id, message, user_id=user_id)
        except (Conflict, InvalidMessage) as error:
            logger.warning("%s: %s was skipped: %s", event.agent, message["id"], error)
