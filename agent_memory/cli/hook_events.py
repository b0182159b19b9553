"""Handle one event of a coding agent, from standard input to exit code."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from time import monotonic

from agent_memory.cli.common import load_config
from agent_memory.core.query_text import is_courtesy
from agent_memory.core.records import Entry, Recall
from agent_memory.engine.memory import AgentMemory
from agent_memory.errors import InvalidInput
from agent_memory.integrations.hooks.events import Event, answer, read_event
from agent_memory.integrations.hooks.storing import store as store_transcript
from agent_memory.integrations.transcripts import render

_FAILED = 1  # never 2: exit code 2 stops the agent
_LONGEST = 64 * 1024 * 1024


def answered(
    event: str,
    agent: str,
    user: str,
    store: str | None,
    config: Path | None = None,
    strict: bool = False,
) -> int:
    """Handle the event on standard input. Return the exit code: 1 for a failure if `strict`."""
    try:
        received = read_event(agent, event, _read_event())
        settings = load_config(store, config)
        # the agent is waiting: work that needs a model is left to other processes
        quick = settings.model_copy(update={"model": None, "overflow_mode": "inline"})
        with AgentMemory(quick) as memory:
            output = _run(memory, event, received, user)
        if output:
            print(output, flush=True)
    except Exception as error:  # noqa: BLE001 - the agent goes on without memory
        text = " ".join(str(error).split()) or type(error).__name__
        print(f"agent-memory hook {event}: {text}", file=sys.stderr, flush=True)
        return _FAILED if strict else 0
    return 0


def _read_event() -> bytes:
    if sys.stdin is None or sys.stdin.isatty():
        raise InvalidInput("Standard input has no event. A coding agent runs this command.")
    event = sys.stdin.buffer.read(_LONGEST + 1)
    if len(event) > _LONGEST:
        raise InvalidInput(f"The event has more than {_LONGEST:,} bytes.")
    return event


_SECONDS = 20.0  # storing stops then, except before a compaction; the next event stores the rest


def _run(memory: AgentMemory, name: str, event: Event, user_id: str) -> str:
    """Handle an event, and return the hook's output, which may be empty."""
    if name == "UserPromptSubmit":
        return answer(event, _for_prompt(memory, event, user_id))
    if name == "SessionStart":
        return answer(event, _at_start(memory, event, user_id))
    compacts = name == "PreCompact"
    store_transcript(memory, event, user_id, None if compacts else monotonic() + _SECONDS)
    if compacts and memory.head(event.session_id, user_id=user_id) is not None:
        memory.checkpoint(event.session_id, user_id=user_id)
    return ""


_QUOTES = 5


def _for_prompt(memory: AgentMemory, event: Event, user_id: str) -> str:
    """Return messages of the user's other sessions that are relevant to a prompt."""
    if is_courtesy(event.prompt):
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
    return _quotes(about_user, _recent(memory, event, user_id))


def _recent(memory: AgentMemory, event: Event, user_id: str) -> list[str]:
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
    return [
        f"[{entry.said_at:%Y-%m-%d}] {entry.message.role}: {entry.message.text()}"
        for entry in entries
        if entry is not None
    ]


def _last(memory: AgentMemory, session_id: str, user_id: str, role: str) -> Entry | None:
    entries = memory.history(session_id, user_id=user_id, last=_TAIL)
    texts = (entry for entry in reversed(entries) if entry.message.role == role)
    return next((entry for entry in texts if entry.message.text()), None)


def _quotes(recalls: Sequence[Recall], recent: Sequence[str] = ()) -> str:
    parts: dict[str, list[str]] = {}
    room = _MOST
    for name, line in [
        *((recall.block, _cut(str(recall))) for recall in recalls),
        *(("recent", _cut(line)) for line in recent),
    ]:
        room -= len(line)
        if room >= 0:
            parts.setdefault(name, []).append(line)
    return render(parts)


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_QUOTE else f"{text[:_LONGEST_QUOTE]} ..."
