"""Adds agent-memory's hooks to the settings of coding agents, and removes them. No I/O.

A hook is ours if its command runs `agent-memory hook`. Other hooks keep their order.
"""

from __future__ import annotations

import copy
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from agent_memory.errors import ConfigError
from agent_memory.integrations.hooks.events import EVENTS, GEMINIS

Settings = dict[str, Any]

_OURS = re.compile(r"\bagent-memory['\"]? hook [A-Z]\w+ ")
_SECONDS = {"SessionStart": 30, "UserPromptSubmit": 10, "Stop": 60, "PreCompact": 300}
_CURSORS = {
    "SessionStart": "sessionStart",
    "UserPromptSubmit": "beforeSubmitPrompt",
    "Stop": "stop",
    "PreCompact": "preCompact",
    "SessionEnd": "sessionEnd",
}


class Place(NamedTuple):
    """The location of an agent's hooks."""

    home: str  # the settings file of the user, relative to the home folder
    project: str  # the settings file of a project, relative to the project's folder
    events: Mapping[str, str]  # the agent's name of each event, by Claude Code's name
    nested: bool = True  # whether the entries of an event are groups of hooks
    fixed: Mapping[str, Any] = {}  # fields that the settings must have, with their values


_SAME = {name: name for name in EVENTS}
_WITHOUT_END = {name: name for name in EVENTS if name != "SessionEnd"}
_OF_GEMINI = {name: GEMINIS[name] for name in ("SessionStart", "UserPromptSubmit", "Stop")}

PLACES = {
    "claude-code": Place(".claude/settings.json", ".claude/settings.local.json", _SAME),
    "codex": Place(".codex/hooks.json", ".codex/hooks.json", _WITHOUT_END),
    "gemini-cli": Place(".gemini/settings.json", ".gemini/settings.json", _OF_GEMINI),
    "cursor": Place(".cursor/hooks.json", ".cursor/hooks.json", _CURSORS, False, {"version": 1}),
}
"""The location for each agent. Codex has no `SessionEnd` here: only some releases report it."""


def with_hooks(agent: str, command: Sequence[str], settings: Settings) -> Settings:
    """Return settings with our hooks, which replace our earlier hooks and run `command`."""
    place = PLACES[agent]
    changed = without_hooks(settings)
    for name, value in place.fixed.items():
        changed.setdefault(name, value)
    hooks = changed.setdefault("hooks", {})
    for event, named in place.events.items():
        hooks.setdefault(named, []).append(_entry(agent, event, command))
    return changed


def without_hooks(settings: Settings) -> Settings:
    """Return settings without our hooks, and without entries that become empty."""
    changed = copy.deepcopy(settings)
    hooks = changed.get("hooks", {})
    if not isinstance(hooks, dict) or not all(isinstance(group, list) for group in hooks.values()):
        raise ConfigError(
            'The "hooks" of these settings are not an object of lists. Fix the settings and try '
            "again."
        )
    for event, entries in list(hooks.items()):
        remaining = [left for entry in entries if (left := _left(entry)) is not None]
        if remaining:
            hooks[event] = remaining
        elif entries:
            del hooks[event]
    if not hooks and settings.get("hooks"):
        del changed["hooks"]
    return changed


def _entry(agent: str, event: str, command: Sequence[str]) -> Settings:
    program, *options = command
    line = shlex.join([program, "hook", event, "--agent", agent, *options])
    hook: Settings = {"type": "command", "command": line, "timeout": _SECONDS.get(event, 60)}
    if agent == "gemini-cli":
        hook["timeout"] *= 1000  # Gemini CLI expects milliseconds
    if PLACES[agent].nested:
        return {"hooks": [hook]}
    return {"command": line}


def _left(entry: Any) -> Any:
    """Return an entry without our hooks; None if nothing remains."""
    if not isinstance(entry, dict):
        return entry
    hooks = entry.get("hooks")
    if isinstance(hooks, list):
        others = [hook for hook in hooks if not _is_ours(hook)]
        return entry if others == hooks else {**entry, "hooks": others} if others else None
    return None if _is_ours(entry) else entry


def _is_ours(hook: Any) -> bool:
    command = hook.get("command") if isinstance(hook, dict) else None
    return isinstance(command, str) and bool(_OURS.search(command))
