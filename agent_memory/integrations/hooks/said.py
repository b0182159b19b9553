"""Read a user's messages directly from a SQLite file, without loading the library.

It only reads, and supports one version of the tables.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from agent_memory.errors import StoreUnavailable
from agent_memory.integrations.hooks.word_places import MOST, WordPlaces

VERSION = 1
"""The supported version of the tables."""

_BREAK = "\x00"  # separates messages: no text contains it
_WAIT_SECONDS = 0.2
_SESSIONS = (
    "SELECT id, about, "
    "(SELECT min(seq) FROM agent_memory_messages WHERE namespace = d.namespace AND session = id), "
    "(SELECT max(seq) FROM agent_memory_messages WHERE namespace = d.namespace AND session = id) "
    "FROM agent_memory_documents AS d WHERE namespace = ? AND collection = 'head' AND owner = ? "
    "ORDER BY first DESC, rowid DESC"
)
_WORDS = (
    "SELECT first, last, body FROM agent_memory_documents "
    "WHERE namespace = ? AND collection = 'fact:_words' AND session = ? ORDER BY first"
)
_SPOKEN = "role IN ('user', 'assistant')"
_MESSAGES = (  # one text, 4 times faster than one row for each
    "SELECT group_concat(seq), group_concat(CASE body WHEN '' THEN text ELSE body END, char(0)) "
    "FROM (SELECT seq, text, body FROM agent_memory_messages "
    "WHERE namespace = ? AND session = ? AND (seq < ? OR seq > ?) "
    f"AND {_SPOKEN} ORDER BY seq DESC LIMIT ?)"
)
_MESSAGE = (
    "SELECT role, text, body, created_at FROM agent_memory_messages "
    f"WHERE namespace = ? AND session = ? AND seq = ? AND {_SPOKEN}"
)
_DELETING = '{"deleting":true'


_TEXT = '{"text":"'


class StoredMessage(NamedTuple):
    """A message as stored.

    Attributes:
        role: The speaker's role.
        text: Its text, if `body` is empty.
        body: Its JSON, if it has more than a role and a text.
        micros: Its time, in microseconds since 1970.
    """

    role: str
    text: str
    body: str
    micros: int


class Part(NamedTuple):
    """Some messages of one session.

    Attributes:
        session: The session's id.
        seqs: Their seqs.
        size: Number of messages.
        holding: Returns the places of messages with a text, and perhaps of some others.
    """

    session: str
    seqs: Sequence[int]
    size: int
    holding: Callable[[str], Collection[int]]


class Said:
    """A memory's file, read at one point in time.

    Args:
        path: The file.
        namespace: The store's namespace.

    Raises:
        StoreUnavailable: The file does not exist, or has another version.
    """

    def __init__(self, path: str, namespace: str) -> None:
        self._namespace = namespace
        if not os.path.exists(path):  # sqlite3 would create it
            raise StoreUnavailable(f"There is no memory at {path} yet. The first stop creates it.")
        self._file = sqlite3.connect(path, timeout=_WAIT_SECONDS)
        try:
            self._begin(path)
        except BaseException:
            self.close()
            raise

    def _begin(self, path: str) -> None:
        """Begin a read transaction, and check the version."""
        self._file.execute("PRAGMA query_only = ON")
        self._file.execute("BEGIN")
        version = self._file.execute(
            "SELECT value FROM agent_memory_meta WHERE name = 'schema_version'"
        ).fetchone()
        if version != (VERSION,):
            raise StoreUnavailable(
                f"{path} has tables of another version than {VERSION}. Upgrade agent-memory where "
                "the hooks run, and open the memory once."
            )

    def parts(self, user_id: str, most: int, without: str) -> Iterator[Part]:
        """Yield messages of a user and the assistant, newest session first.

        Args:
            user_id: The user.
            most: Approximate maximum number of messages.
            without: A session to skip.
        """
        rows = self._file.execute(_SESSIONS, (self._namespace, f"user:{user_id}")).fetchall()
        for session_id, about, start, end in rows:
            if session_id == without or start is None or about.startswith(_DELETING):
                continue
            for part in self._of(session_id, start, end, most):
                most -= part.size
                yield part
            if most <= 0:
                return

    def _of(self, session_id: str, start: int, end: int, most: int) -> Iterator[Part]:
        """Yield contiguous indexed messages, then read the others."""
        low = high = 0
        of = (self._namespace, session_id)
        for first, last, body in self._file.execute(_WORDS, of):
            if low and first != high + 1:
                break
            try:
                places = WordPlaces(_text(body))
            except ValueError:  # the index is optional: the messages are read instead
                break
            low, high = low or first, last
            yield Part(session_id, range(first, first + MOST), places.count, places.holding)
        if start < low or end > high:
            seqs, messages = self._file.execute(_MESSAGES, (*of, low, high, most)).fetchone()
            if seqs:
                numbers, texts = seqs.split(","), messages.lower().split(_BREAK)
                yield Part(session_id, [*map(int, numbers)], len(texts), partial(_holding, texts))

    def message(self, session: str, seq: int) -> StoredMessage | None:
        """Return a message of a user or an assistant; None if it no longer exists."""
        found = self._file.execute(_MESSAGE, (self._namespace, session, seq)).fetchone()
        return None if found is None else StoredMessage(*found)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _text(body: str) -> str:
    """Return the text of a record without JSON escapes; faster than a JSON parser."""
    if not body.startswith(_TEXT):
        raise ValueError("The record is not readable by this release.")
    return body[len(_TEXT) : body.index('"', len(_TEXT))]


def _holding(texts: Sequence[str], root: str) -> list[int]:
    return [place for place, text in enumerate(texts) if root in text]
