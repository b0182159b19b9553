"""The settings files of coding agents on this machine."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from agent_memory.errors import ConfigError, InvalidInput
from agent_memory.integrations.hooks.settings import PLACES

_MOVED = {"claude-code": "CLAUDE_CONFIG_DIR", "codex": "CODEX_HOME"}


def home() -> Path:
    """The user's home.

    Raises:
        InvalidInput: There is none.
    """
    try:
        return Path.home()
    except RuntimeError:
        raise InvalidInput("There is no home folder here. Set HOME, or use --project.") from None


def folder(agent: str) -> Path:
    """Where an agent keeps a user's settings."""
    moved = os.environ.get(_MOVED.get(agent, ""))
    return Path(moved) if moved else home() / Path(PLACES[agent].home).parent


def settings_file(agent: str, project: bool) -> Path:
    """The file that holds an agent's hooks: the user's, or that of the current folder."""
    place = PLACES[agent]
    path = Path.cwd() / place.project if project else folder(agent) / Path(place.home).name
    return path.resolve()  # what a link leads to is what is written


def read(path: Path) -> tuple[str, dict[str, Any]]:
    """A file's text, and what it says; nothing for one that is not there.

    Raises:
        ConfigError: It is no JSON object; it is left alone.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return "", {}
    try:
        found = json.loads(text) if text.strip() else {}
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is no JSON: {error}. Mend it, and run this again.") from None
    if not isinstance(found, dict):
        raise ConfigError(f"{path} holds no JSON object. Mend it, and run this again.")
    return text, found


def write(path: Path, text: str) -> None:
    """Write a file whole or not at all, with the rights that it had."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(name, path.stat().st_mode & 0o7777 if path.exists() else 0o600)
        os.replace(name, path)
    except BaseException:  # Ctrl-C too: what was half written must not stay; the failure goes on
        os.unlink(name)
        raise
