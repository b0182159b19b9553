"""Reads a user's messages directly from a SQLite file.

The hook for prompts uses this module because the rest of the library takes longer to load. The
module never writes, and supports one version of the tables.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from agent_memory.errors import StoreUnavailable

VERSION = 1
"""The supported version of the tables."""

_BREAK = "\x00"  # the separator of messages, which no text contains
_WAIT_SECONDS = 0.2
_SESSIONS = (
    "SELECT id, about FROM agent_memory_documents "
    "WHERE namespace = ? AND collection = 'head' AND owner = ? ORDER BY first DESC, rowid DESC"
)
_SPOKEN = "role IN ('user', 'assistant')"
_MESSAGES = (  # one row with all messages is 4 times faster than a row for each message
    "SELECT group_concat(seq), group_concat(CASE body WHEN '' THEN text ELSE body END, char(0)) "
    "FROM (SELECT seq, text, body FROM agent_memory_messages "
    f"WHERE namespace = ? AND session = ? AND {_SPOKEN} ORDER BY seq DESC LIMIT ?)"
)
_MESSAGE = (
    "SELECT role, text, body, created_at FROM agent_memory_messages "
    f"WHERE namespace = ? AND session = ? AND seq = ? AND {_SPOKEN}"
)
_DELETING = '{"deleting":true'


class StoredMessage(NamedTuple):
    """A message as stored."""

    role: str
    text: str  # the text, if `body` is empty
    body: str  # the message as JSON; empty if it has only a role and a text
    micros: int  # the time, in microseconds since 1970


class Part(NamedTuple):
    """The messages of a session, in the order of `seqs`."""

    session: str
    seqs: Sequence[int]
    texts: Sequence[str]  # texts or JSON of messages, as in `StoredMessage`, in lower case


class LogFile:
    """A memory's SQLite file, open in a read transaction, which does not see later changes."""

    def __init__(self, path: str, namespace: str) -> None:
        self._namespace = namespace
        if not os.path.exists(path):  # sqlite3 would create the file
            raise StoreUnavailable(f"There is no memory at {path} yet. The first stop creates it.")
        self._file = sqlite3.connect(path, timeout=_WAIT_SECONDS)
        try:
            self._begin(path)
        except BaseException:
            self.close()
            raise

    def _begin(self, path: str) -> None:
        self._file.execute("PRAGMA query_only = ON")
        self._file.execute("BEGIN")
        version = self._file.execute(
            "SELECT value FROM agent_memory_meta WHERE name = 'schema_version'"
        ).fetchone()
        if version != (VERSION,):
            raise StoreUnavailable(
                f"{path} has tables of another version than {VERSION}. Upgrade the installation of "
                "agent-memory that runs the hooks, and open the memory once."
            )

    def parts(self, user_id: str, most: int, without: str) -> Iterator[Part]:
        """Yield up to `most` messages of a user and the assistant, the newest session first.

        The session `without` is left out.
        """
        rows = self._file.execute(_SESSIONS, (self._namespace, f"user:{user_id}")).fetchall()
        for session_id, about in rows:
            if session_id == without or about.startswith(_DELETING):
                continue
            of_session = (self._namespace, session_id, most)
            seqs, messages = self._file.execute(_MESSAGES, of_session).fetchone()
            if seqs:
                texts = messages.lower().split(_BREAK)
                yield Part(session_id, [*map(int, seqs.split(","))], texts)
                most -= len(texts)
            if most <= 0:
                return

    def message(self, session: str, seq: int) -> StoredMessage | None:
        """Return a message of a user or an assistant; None if it no longer exists."""
        row = self._file.execute(_MESSAGE, (self._namespace, session, seq)).fetchone()
        return None if row is None else StoredMessage(*row)

    def close(self) -> None:
        self._file.close()
