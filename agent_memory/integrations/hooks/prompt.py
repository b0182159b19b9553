"""Recall for a prompt, in a short-lived process."""

from __future__ import annotations

import sqlite3
from time import gmtime, strftime

from agent_memory.errors import StoreUnavailable
from agent_memory.integrations.hooks.said import Said
from agent_memory.integrations.hooks.words import bearing
from agent_memory.integrations.transcripts.own import told

MOST_SAID = 20_000
"""Number of newest messages that are searched."""

LIMIT = 5
"""Number of messages that are quoted."""

_NAMESPACE = "default"
_LONGEST = 600  # characters of a quote


def recalled(path: str, user_id: str, prompt: str, session_id: str) -> str:
    """Return messages of a user's other sessions relevant to a prompt, as context; else empty.

    Args:
        path: The memory's SQLite file.
        user_id: The user.
        prompt: The user's prompt.
        session_id: The current session, which the agent knows itself.

    Raises:
        StoreUnavailable: The file cannot be read now.
    """
    try:
        said = Said(path, _NAMESPACE)
        try:
            parts = said.parts(user_id, MOST_SAID, session_id)
            found = bearing(prompt, parts, said.message, LIMIT)
        finally:
            said.close()
    except sqlite3.Error as error:
        raise StoreUnavailable(f"{path} cannot be read: {error}.") from error
    return told({"log": [f"[{_day(one.micros)}] {one.role}: {cut(one.text)}" for one in found]})


def _day(micros: int) -> str:
    return strftime("%Y-%m-%d", gmtime(micros // 1_000_000))


def cut(text: str) -> str:
    """Return a text, shortened for a quote."""
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."
