"""What a prompt brings back, in a process that begins for it and ends with it."""

from __future__ import annotations

import sqlite3
from time import gmtime, strftime

from agent_memory.errors import StoreUnavailable
from agent_memory.integrations.hooks.said import Said
from agent_memory.integrations.hooks.words import bearing
from agent_memory.integrations.transcripts.own import told

MOST_SAID = 20_000
"""Messages that are looked at, the newest."""

LIMIT = 5
"""Messages that are quoted."""

_NAMESPACE = "default"
_LONGEST = 600  # characters of a quote


def recalled(path: str, user_id: str, prompt: str, session_id: str) -> str:
    """What a user's other sessions say that bears on a prompt, as the model reads it; else nothing.

    Args:
        path: The SQLite file of the memory.
        user_id: Whose memory.
        prompt: What the user says.
        session_id: The session at hand, which the agent knows itself.

    Raises:
        StoreUnavailable: The file cannot be read now.
    """
    try:
        said = Said(path)
        try:
            parts = said.parts(_NAMESPACE, user_id, MOST_SAID, session_id)
            found = bearing(prompt, parts, said.message, LIMIT)
        finally:
            said.close()
    except sqlite3.Error as error:
        raise StoreUnavailable(f"{path} cannot be read: {error}.") from error
    return told({"log": [f"[{_day(one.micros)}] {one.role}: {cut(one.text)}" for one in found]})


def _day(micros: int) -> str:
    return strftime("%Y-%m-%d", gmtime(micros // 1_000_000))


def cut(text: str) -> str:
    """A text as it is quoted: of a long one the beginning."""
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."
