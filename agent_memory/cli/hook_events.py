"""Handle one event of a coding agent, from standard input to exit code.

Each prompt starts a new process, which imports this module. Slow imports are therefore inside
functions.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from time import monotonic
from typing import TYPE_CHECKING

from agent_memory.errors import InvalidInput
from agent_memory.integrations.hooks.events import Event, answer, read_event
from agent_memory.integrations.hooks.prompt import LIMIT, cut, recalled
from agent_memory.integrations.transcripts import render

if TYPE_CHECKING:
    from pathlib import Path

    from agent_memory.core.records import Entry, Recall
    from agent_memory.engine.memory import AgentMemory

_FAILED = 1  # never 2: exit code 2 stops the agent
_LONGEST = 64 * 1024 * 1024
_SQLITE = "sqlite:///"
_STORE = "AGENT_MEMORY_STORE"


def answered(
    event: str,
    agent: str,
    user: str,
    store: str | None,
    config: Path | None = None,
    strict: bool = False,
) -> int:
    """Handle the event on standard input. Return the exit code: 1 for a failure if `strict`."""

    def opened() -> AgentMemory:
        from agent_memory.cli.common import load_config
        from agent_memory.engine.memory import AgentMemory

        settings = load_config(store, config)
        # The agent is waiting: work that needs a model is left to other processes.
        return AgentMemory(settings.model_copy(update={"model": None, "overflow_mode": "inline"}))

    try:
        output = _run(agent, event, _read_event(), user, _file(store, config), opened)
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


def _file(store: str | None, config: Path | None) -> str | None:
    """Return the SQLite file that a prompt's hook may read directly, or None."""
    others = any(name.startswith("AGENT_MEMORY_") and name != _STORE for name in os.environ)
    if store is None or not store.startswith(_SQLITE) or config is not None or others:
        return None
    return store.removeprefix(_SQLITE)


_SECONDS = 20.0  # storing stops then, except before a compaction; the next event stores the rest


def _run(
    agent: str,
    name: str,
    content: bytes,
    user_id: str,
    file: str | None,
    opened: Callable[[], AgentMemory],
) -> str:
    """Handle an event, and return the hook's output, which may be empty.

    `file` is the SQLite file that prompts may read directly; None to use the library.
    """
    event = read_event(agent, name, content)
    if name == "UserPromptSubmit":
        return answer(event, _for_prompt(event, user_id, file, opened))
    with opened() as memory:
        if name == "SessionStart":
            return answer(event, _at_start(memory, event, user_id))
        from agent_memory.integrations.hooks.storing import store

        compacts = name == "PreCompact"
        store(memory, event, user_id, None if compacts else monotonic() + _SECONDS)
        if compacts and memory.head(event.session_id, user_id=user_id) is not None:
            memory.checkpoint(event.session_id, user_id=user_id)
    return ""


def _for_prompt(
    event: Event, user_id: str, file: str | None, opened: Callable[[], AgentMemory]
) -> str:
    """Return messages of the user's other sessions that are relevant to a prompt."""
    if not event.prompt.strip():
        return ""
    if file is not None:
        return recalled(file, user_id, event.prompt, event.session_id)
    with opened() as memory:
        hits = memory.search(event.prompt, user_id=user_id, limit=2 * LIMIT)
    others = [hit for hit in hits if event.session_id not in {name for name, _ in hit.sources}]
    return _quotes(others[:LIMIT])


_SESSIONS = 2
_LOOKED_AT = 50  # number of newest sessions that are searched for sessions in the same folder
_TAIL = 40  # number of newest entries that are searched for a session's last question and answer
_MOST = 8_000  # maximum characters of output, because agents shorten longer output


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
        hits = memory.search(question, session_id=event.session_id, user_id=user_id, limit=LIMIT)
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
        *((recall.block, cut(str(recall))) for recall in recalls),
        *(("recent", cut(line)) for line in recent),
    ]:
        room -= len(line)
        if room >= 0:
            parts.setdefault(name, []).append(line)
    return render(parts)
