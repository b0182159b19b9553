"""What a user's sessions say, straight from a SQLite file: for a process that has no time to load
the library.

It reads, never writes, and knows the tables of one version only.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from agent_memory.errors import StoreUnavailable
from agent_memory.integrations.hooks.word_places import MOST, WordPlaces

VERSION = 7
"""The version of the tables that it can read."""

_BREAK = "\x00"  # stands between messages: JSON has it escaped
_WAIT_SECONDS = 0.2
_SESSIONS = (
    "SELECT key, session_id, "
    "(SELECT min(seq) FROM agent_memory_entries_v7 WHERE session = key), "
    "(SELECT max(seq) FROM agent_memory_entries_v7 WHERE session = key) "
    "FROM agent_memory_sessions_v7 WHERE namespace = ? AND user_id = ? AND NOT deleting "
    "ORDER BY key DESC"
)
_WORDS = (
    "SELECT first, last, body FROM agent_memory_facts_v7 "
    "WHERE namespace = ? AND block = '_words' AND session_id = ? ORDER BY first"
)
_SPOKEN = (  # comparing is quicker than LIKE
    '(message BETWEEN \'{"role":"assistant"\' AND \'{"role":"assistant"~\' '
    'OR message BETWEEN \'{"role":"user"\' AND \'{"role":"user"~\')'
)
_MESSAGES = (  # as one text: a row for each takes four times as long
    "SELECT group_concat(seq), group_concat(message, char(0)) FROM (SELECT seq, message FROM "
    "agent_memory_entries_v7 WHERE session = ? AND (seq < ? OR seq > ?) "
    f"AND {_SPOKEN} ORDER BY seq DESC LIMIT ?)"
)
_MESSAGE = (
    "SELECT message, created_at FROM agent_memory_entries_v7 "
    f"WHERE session = ? AND seq = ? AND {_SPOKEN}"
)


_TEXT = '{"text":"'


class StoredMessage(NamedTuple):
    """A message as it is kept.

    Attributes:
        json: What it is.
        micros: When it was said, in microseconds since 1970.
    """

    json: str
    micros: int


class Part(NamedTuple):
    """Some messages of one session.

    Attributes:
        session: The session's key in the file.
        seqs: Where in the session they stand.
        size: How many are looked at.
        holding: Gives the places of those that have this in them, and maybe of some more.
    """

    session: int
    seqs: Sequence[int]
    size: int
    holding: Callable[[str], Collection[int]]


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

    def parts(self, namespace: str, user_id: str, most: int, without: str) -> Iterator[Part]:
        """What a user and the assistant said, the session begun last first.

        Args:
            namespace: The store's namespace.
            user_id: Whose.
            most: At most so many messages, or a few more, of them all.
            without: A session that is passed over.
        """
        rows = self._file.execute(_SESSIONS, (namespace, user_id)).fetchall()
        for key, session_id, start, end in rows:
            if session_id == without or start is None:
                continue
            for part in self._of(namespace, key, session_id, start, end, most):
                most -= part.size
                yield part
            if most <= 0:
                return

    def _of(
        self, namespace: str, key: int, session_id: str, start: int, end: int, most: int
    ) -> Iterator[Part]:
        """Messages whose words are noted, without a gap between them; then the rest, read."""
        low = high = 0
        for first, last, body in self._file.execute(_WORDS, (namespace, session_id)):
            if low and first != high + 1:
                break
            try:
                places = WordPlaces(_text(body))
            except ValueError:  # it is no more than an index: the messages are read instead
                break
            low, high = low or first, last
            yield Part(key, range(first, first + MOST), places.count, places.holding)
        if start < low or end > high:
            seqs, messages = self._file.execute(_MESSAGES, (key, low, high, most)).fetchone()
            if seqs:
                numbers, texts = seqs.split(","), messages.lower().split(_BREAK)
                yield Part(key, [*map(int, numbers)], len(texts), partial(_holding, texts))

    def message(self, session: int, seq: int) -> StoredMessage | None:
        """A message of a user or an assistant; None where it is not there any more."""
        found = self._file.execute(_MESSAGE, (session, seq)).fetchone()
        return None if found is None else StoredMessage(*found)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _text(body: str) -> str:
    """The text of a record in which nothing has to be escaped: quicker than JSON is read."""
    if not body.startswith(_TEXT):
        raise ValueError("This is no record that this release can read.")
    return body[len(_TEXT) : body.index('"', len(_TEXT))]


def _holding(texts: Sequence[str], root: str) -> list[int]:
    return [place for place, text in enumerate(texts) if root in text]
