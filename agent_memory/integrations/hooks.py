"""Hooks for coding agents: parse an agent's event, recall messages for it, store its transcript.

An event cannot choose the user or the store. The installed command of the hook names both.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

from agent_memory.core.query_text import is_small_talk
from agent_memory.core.records import Entry, Recall
from agent_memory.engine.memory import AgentMemory
from agent_memory.errors import Conflict, InvalidInput, InvalidMessage
from agent_memory.integrations.transcripts import (
    Line,
    chat_messages,
    claude_code_messages,
    codex_messages,
    cursor_messages,
    json_object,
    lines_from,
    listed,
    render,
    text_in,
    without_ours,
)

logger = logging.getLogger(__name__)

_LONGEST_ID = 200
_SECONDS = 20.0  # storing stops then, except before a compaction; the next event stores the rest
Messages = list[dict[str, Any]]


class Event(NamedTuple):
    """One event. A field that the agent did not send is empty."""

    agent: str
    name: str  # the name of the event in Claude Code
    own_name: str  # the agent's own name of the event
    session_id: str
    transcript: str  # the path of the session's transcript
    prompt: str
    reply: str  # the answer to the prompt, which only Gemini CLI sends
    at: str  # the time of the event, which only Gemini CLI sends
    cwd: str
    source: str  # the cause of a session's start: "startup", "resume", "clear" or "compact"


def read_event(agent: str, name: str, own_name: str, content: bytes) -> Event:
    """Parse an event. Cursor also runs Claude Code's hooks; the agent is then "cursor"."""
    fields = json_object(content)
    if fields is None:
        raise InvalidInput("Standard input is not a JSON object. An agent must send its event.")
    if "cursor_version" in fields:
        agent = "cursor"
    texts = defaultdict(str, {key: each for key, each in fields.items() if isinstance(each, str)})
    named = texts["session_id"] or texts["conversation_id"]
    if not named or len(named) > _LONGEST_ID:
        raise InvalidInput("The event has no valid session. It needs a session_id.")
    root = next(filter(text_in, listed(fields.get("workspace_roots"))), "")
    return Event(
        agent=agent,
        name=name,
        own_name=own_name,
        session_id=f"{agent}:{named}",
        transcript=texts["transcript_path"],
        prompt=texts["prompt"],
        reply=texts["prompt_response"],
        at=texts["timestamp"],
        cwd=texts["cwd"] or root,
        source=texts["source"],
    )


def handle(memory: AgentMemory, event: Event, user_id: str) -> str:
    """Handle an event, and return the hook's output, which may be empty."""
    if event.name == "UserPromptSubmit":
        return answer(event, _for_prompt(memory, event, user_id))
    if event.name == "SessionStart":
        return answer(event, _at_start(memory, event, user_id))
    compacts = event.name == "PreCompact"
    store(memory, event, user_id, None if compacts else monotonic() + _SECONDS)
    if compacts and memory.head(event.session_id, user_id=user_id) is not None:
        memory.checkpoint(event.session_id, user_id=user_id)
    return ""


def answer(event: Event, context: str) -> str:
    """Return the output that adds `context` to the agent's context; empty if `context` is empty."""
    if not context:
        return ""
    if event.agent == "cursor":
        return json.dumps({"additional_context": context})
    output = {"hookEventName": event.own_name, "additionalContext": context}
    return json.dumps({"hookSpecificOutput": output})


_QUOTES = 5


def _for_prompt(memory: AgentMemory, event: Event, user_id: str) -> str:
    """Return messages of the user's other sessions that are relevant to a prompt."""
    if is_small_talk(event.prompt):
        return ""
    hits = memory.search(event.prompt, user_id=user_id, limit=2 * _QUOTES)
    others = [hit for hit in hits if event.session_id not in {name for name, _ in hit.sources}]
    return _quotes(others[:_QUOTES])


_SESSIONS = 2
_LOOKED_AT = 50  # number of newest sessions that are searched for sessions in the same folder
_TAIL = 40  # number of newest entries that are searched for a session's last question and answer
_MOST = 8_000  # maximum characters of output, because agents shorten longer output
_LONGEST_QUOTE = 600


def _at_start(memory: AgentMemory, event: Event, user_id: str) -> str:
    """Return recalls for the user, and the last messages of the newest sessions in this folder.

    After a compaction, return messages of the same session that are relevant to its newest
    question, because the agent may have lost them.
    """
    if event.source == "compact":
        entry = _last(memory, event.session_id, user_id, "user")
        if entry is None:
            return ""
        question = entry.message.text()
        hits = memory.search(question, session_id=event.session_id, user_id=user_id, limit=_QUOTES)
        return _quotes([hit for hit in hits if (entry.session_id, entry.seq) not in hit.sources])
    about_user = memory.get(event.session_id, user_id=user_id).recalls
    return _quotes([*about_user, *_recent(memory, event, user_id)])


def _recent(memory: AgentMemory, event: Event, user_id: str) -> list[Recall]:
    """Return the last question and answer of the newest other sessions in the event's folder."""
    if not event.cwd:
        return []
    heads = memory.sessions(user_id=user_id, newest=True, limit=_LOOKED_AT)
    near = [head.session_id for head in heads if head.metadata.get("cwd") == event.cwd]
    others = [name for name in near if name != event.session_id]
    entries = [
        _last(memory, name, user_id, role)
        for name in others[:_SESSIONS]
        for role in ("user", "assistant")
    ]
    texts = [
        f"[{entry.local_time:%Y-%m-%d}] {entry.message.role}: {entry.message.text()}"
        for entry in entries
        if entry is not None
    ]
    return [Recall("recent", "", text) for text in texts]


def _last(memory: AgentMemory, session_id: str, user_id: str, role: str) -> Entry | None:
    entries = memory.history(session_id, user_id=user_id, last=_TAIL)
    texts = (entry for entry in reversed(entries) if entry.message.role == role)
    return next((entry for entry in texts if entry.message.text()), None)


def _quotes(recalls: Sequence[Recall]) -> str:
    quotes: list[Recall] = []
    room = _MOST
    for recall in recalls:
        text = str(recall)
        if len(text) > _LONGEST_QUOTE:
            text = f"{text[:_LONGEST_QUOTE]} ..."
        room -= len(text)
        if room >= 0:
            quotes.append(Recall(recall.block, recall.id, text))
    return render(quotes)


READERS = {"claude-code": claude_code_messages, "codex": codex_messages, "cursor": cursor_messages}

_NAMESPACE = ("hooks", "read")
_BATCH = 200  # messages in one call of `update`
_BATCH_BYTES = 4 * 1024 * 1024


def store(memory: AgentMemory, event: Event, user_id: str, until: float | None = None) -> None:
    """Store the new part of a session's transcript. For Gemini CLI, store the event's turn.

    Message ids derive from the transcript, so that concurrent or interrupted hooks store nothing
    twice. The position in the transcript is a value of the user. A deletion of the session keeps
    this value, so only new messages are stored then. At the time `until`, on the clock of
    `time.monotonic`, the function stops. The next call stores the remaining messages.
    """
    if event.agent == "gemini-cli":
        _append(memory, event, user_id, _turn(event))
        return
    if not event.transcript:
        raise InvalidInput("The event names no transcript, so no message can be stored.")
    path = Path(event.transcript).expanduser()
    values = memory.values(user_id)
    stored = values.get(_NAMESPACE, event.session_id)
    state = stored.value if stored is not None else {}
    offset = state.get("offset", 0) if state.get("path") == str(path) else 0
    for messages, end in _batches(event, lines_from(path, offset)):
        _append(memory, event, user_id, messages)
        values.put(_NAMESPACE, event.session_id, {"path": str(path), "offset": end})
        if until is not None and monotonic() > until:
            break


def _turn(event: Event) -> Messages:
    """Return an event's question and answer: Gemini CLI changes lines of its transcripts later."""
    turn = [
        {"role": "user", "content": without_ours(event.prompt)},
        {"role": "assistant", "content": event.reply},
    ]
    own = json.dumps([event.at, event.prompt, event.reply])
    return chat_messages(turn, _digest(own.encode()), event.at)


def _batches(event: Event, lines: Iterator[Line]) -> Iterator[tuple[Messages, int]]:
    read = READERS[event.agent]
    batch: Messages = []
    size = end = 0
    for line in lines:
        end = line.end
        record = json_object(line.raw)
        if record is not None:
            # equal lines of Cursor's transcripts differ only in their position
            where = str(line.start) if event.agent == "cursor" else ""
            batch += read(record, _digest(where.encode() + line.raw))
            size += len(line.raw)
        if len(batch) >= _BATCH or size >= _BATCH_BYTES:
            yield batch, end
            batch, size = [], 0
    if end:
        yield batch, end


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]


def _append(memory: AgentMemory, event: Event, user_id: str, messages: Messages) -> None:
    begins = memory.head(event.session_id, user_id=user_id) is None
    if not messages:
        return
    try:
        memory.update(event.session_id, messages, user_id=user_id)
    except (Conflict, InvalidMessage):  # store the others, one by one
        for message in messages:
            try:
                memory.update(event.session_id, message, user_id=user_id)
            except (Conflict, InvalidMessage) as error:
                logger.warning("%s: %s was skipped: %s", event.agent, message["id"], error)
    if begins:
        about = {"agent": event.agent, "cwd": event.cwd}
        memory.describe(event.session_id, about, user_id=user_id)
