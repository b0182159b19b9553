"""What a user's sessions say, straight from a SQLite file: for a process that has no time to load
the library.

It reads, never writes, and knows the tables of one version only.
"""

from __future__ import annotations

import os
import sqlite3
from typing import NamedTuple

from agent_memory.errors import StoreUnavailable

VERSION = 7
"""The version of the tables that it can read."""

BREAK = "\x00"
"""Stands between messages: JSON has it escaped."""

_WAIT_SECONDS = 0.2
_SESSIONS = (
    "SELECT key, session_id FROM agent_memory_sessions_v7 WHERE namespace = ? AND user_id = ? "
    "AND NOT deleting ORDER BY key DESC"
)
_CHOSEN = (  # comparing is quicker than LIKE
    "FROM agent_memory_entries_v7 WHERE session = ? AND "
    '(message BETWEEN \'{"role":"assistant"\' AND \'{"role":"assistant"~\' '
    'OR message BETWEEN \'{"role":"user"\' AND \'{"role":"user"~\') ORDER BY seq DESC LIMIT ?'
)
_MESSAGES = (  # as one text: a row for each takes four times as long
    f"SELECT group_concat(message, char(0)) FROM (SELECT message {_CHOSEN})"
)
_MOMENT = f"SELECT created_at {_CHOSEN} OFFSET ?"


class Session(NamedTuple):
    """What one session says.

    Attributes:
        key: Its key in the file.
        messages: The JSON of what its user and its assistant said, newest first, parted by
            `BREAK`.
    """

    key: int
    messages: str


class Said:
    """A memory's file, at one moment.

    Args:
        path: The file.

    Raises:
        StoreUnavailable: There is none, or none that this version reads.
    """

    def __init__(self, path: str) -> None:
        if not os.path.exists(path):  # sqlite3 would make an empty one
            raise StoreUnavailable(f"There is no memory at {path} yet. The first stop begins it.")
        self._file = sqlite3.connect(path, timeout=_WAIT_SECONDS)
        try:
            self._begin(path)
        except BaseException:
            self.close()
            raise

    def _begin(self, path: str) -> None:
        """Hold the moment; a file that this version cannot read raises."""
        self._file.execute("PRAGMA query_only = ON")
        self._file.execute("BEGIN")
        version = self._file.execute(
            "SELECT value FROM agent_memory_meta WHERE name = 'schema_version'"
        ).fetchone()
        if version != (VERSION,):
            raise StoreUnavailable(
                f"{path} has tables of another version than {VERSION}, which hooks read. Upgrade "
                "agent-memory where the hooks run, and open the memory once."
            )

    def sessions(self, namespace: str, user_id: str, most: int, without: str) -> list[Session]:
        """A user's sessions, the one begun last first.

        Args:
            namespace: The store's namespace.
            user_id: Whose.
            most: At most so many messages, of them all.
            without: A session that is passed over.
        """
        found: list[Session] = []
        for key, session_id in self._file.execute(_SESSIONS, (namespace, user_id)).fetchall():
            if session_id != without and most > 0:
                (messages,) = self._file.execute(_MESSAGES, (key, most)).fetchone()
                if messages:
                    found.append(Session(key, messages))
                    most -= messages.count(BREAK) + 1
        return found

    def micros(self, session: Session, place: int) -> int:
        """When a session's message was said, in microseconds since 1970."""
        found = self._file.execute(_MOMENT, (session.key, 1, place)).fetchone()
        return int(found[0])

    def close(self) -> None:
        """Close the file."""
        self._file.close()
