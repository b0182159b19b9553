"""What an agent tells a hook on its standard input, and the form of what a hook answers. Pure.

Nothing of it says whose memory it is, or where that is kept: that was fixed when the hook was
installed.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from agent_memory.errors import InvalidInput

AGENTS = ("claude-code", "codex", "cursor")

EVENTS = ("SessionStart", "UserPromptSubmit", "Stop", "PreCompact", "SessionEnd")
"""Events by Claude Code's names, which Codex has too."""

_LONGEST_ID = 200


class Event(NamedTuple):
    """One event.

    Attributes:
        agent: Whose it is.
        name: One of `EVENTS`.
        session_id: The session, as the memory names it.
        transcript: The file in which the agent keeps the session; empty where there is none.
        prompt: What the user says; empty for other events.
        cwd: Where the agent works.
        source: How a session begins: "startup", "resume", "clear", "compact"; else empty.
    """

    agent: str
    name: str
    session_id: str
    transcript: str
    prompt: str
    cwd: str
    source: str


def read_event(agent: str, name: str, given: bytes) -> Event:
    """The event that an agent sent.

    Cursor runs the hooks of Claude Code too: what it sends is told by its fields, and is Cursor's.

    Raises:
        InvalidInput: It is no event.
    """
    try:
        fields = json.loads(given)
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        raise InvalidInput("Standard input holds no JSON object. An agent sends its event there.")
    if "cursor_version" in fields:
        agent = "cursor"
    named = _text(fields, "session_id") or _text(fields, "conversation_id")
    if not named or len(named) > _LONGEST_ID:
        raise InvalidInput("The event names no session that can be kept: it needs a session_id.")
    roots = fields.get("workspace_roots")
    root = roots[0] if isinstance(roots, list) and roots and isinstance(roots[0], str) else ""
    return Event(
        agent=agent,
        name=name,
        session_id=f"{agent}:{named}",
        transcript=_text(fields, "transcript_path"),
        prompt=_text(fields, "prompt"),
        cwd=_text(fields, "cwd") or root,
        source=_text(fields, "source"),
    )


def answer(event: Event, context: str) -> str:
    """What to print for the agent, so that the model reads a context; nothing for no context."""
    if not context:
        return ""
    if event.agent == "cursor":
        return json.dumps({"additional_context": context})
    told = {"hookEventName": event.name, "additionalContext": context}
    return json.dumps({"hookSpecificOutput": told})


def _text(fields: dict[str, Any], name: str) -> str:
    value = fields.get(name)
    return value if isinstance(value, str) else ""
