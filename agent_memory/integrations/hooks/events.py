"""Parses an agent's hook event, and renders the hook's answer. No I/O.

An event cannot choose the user or the store. The installed command of the hook names both.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from agent_memory.errors import InvalidInput

AGENTS = ("claude-code", "codex", "cursor", "gemini-cli")

EVENTS = ("SessionStart", "UserPromptSubmit", "Stop", "PreCompact", "SessionEnd")
"""The names of the events in Claude Code and Codex."""

GEMINIS = {
    "SessionStart": "SessionStart",
    "UserPromptSubmit": "BeforeAgent",
    "Stop": "AfterAgent",
    "PreCompact": "PreCompress",
    "SessionEnd": "SessionEnd",
}
"""The names of the events in Gemini CLI."""

_LONGEST_ID = 200


class Event(NamedTuple):
    """One event. A field that the agent did not send is empty."""

    agent: str
    name: str
    session_id: str
    transcript: str  # the path of the session's transcript
    prompt: str
    reply: str  # the answer to the prompt, which only Gemini CLI sends
    at: str  # the time of the event, which only Gemini CLI sends
    cwd: str
    source: str  # the cause of a session's start: "startup", "resume", "clear" or "compact"


def read_event(agent: str, name: str, content: bytes) -> Event:
    """Parse an event. Cursor also runs Claude Code's hooks; the agent is then "cursor".

    Raises:
        InvalidInput: The event is not a JSON object, or has no valid session id.
    """
    try:
        fields = json.loads(content)
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        raise InvalidInput("Standard input is not a JSON object. An agent must send its event.")
    if "cursor_version" in fields:
        agent = "cursor"
    named = _text(fields, "session_id") or _text(fields, "conversation_id")
    if not named or len(named) > _LONGEST_ID:
        raise InvalidInput("The event has no valid session. It needs a session_id.")
    roots = fields.get("workspace_roots")
    root = roots[0] if isinstance(roots, list) and roots and isinstance(roots[0], str) else ""
    return Event(
        agent=agent,
        name=name,
        session_id=f"{agent}:{named}",
        transcript=_text(fields, "transcript_path"),
        prompt=_text(fields, "prompt"),
        reply=_text(fields, "prompt_response"),
        at=_text(fields, "timestamp"),
        cwd=_text(fields, "cwd") or root,
        source=_text(fields, "source"),
    )


def answer(event: Event, context: str) -> str:
    """Return the output that adds `context` to the agent's context; empty if `context` is empty."""
    if not context:
        return ""
    if event.agent == "cursor":
        return json.dumps({"additional_context": context})
    name = GEMINIS[event.name] if event.agent == "gemini-cli" else event.name
    output = {"hookEventName": name, "additionalContext": context}
    return json.dumps({"hookSpecificOutput": output})


def _text(fields: dict[str, Any], name: str) -> str:
    value = fields.get(name)
    return value if isinstance(value, str) else ""
