"""Reads a user's messages directly from a SQLite file, with an index of their words.

The hook for prompts uses this module because the rest of the library takes longer to load. The
module never writes, and supports one version of the tables.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import NamedTuple

from agent_memory.core.text import WORD
from agent_memory.errors import StoreUnavailable
from agent_memory.retrieval.words import RUN, pairs

MOST = 256
"""Maximum number of messages in one index. A message's place in it, from 0, fits into a byte."""

_MARK = "words 3"
_WIDTH = 9
_PLACES, _ENDS = "=", ";"  # no word contains them, and JSON does not escape them
_ASCII_WORD = re.compile(r"[a-z0-9]+(?:'[a-z0-9]+)*")


class WordPlaces:
    """The word index of up to 256 messages: maps words to the places of messages."""

    def __init__(self, text: str) -> None:
        mark, ends, entries = text.partition(_ENDS)
        self._entries = ends + entries.removesuffix(_MARK)
        name, _, count = mark.rpartition(" ")
        if name != _MARK or not text.endswith(f"{_ENDS}{_MARK}"):
            raise ValueError("The word index is not readable by this release.")
        self.count = int(count)

    def holding(self, root: str) -> set[int]:
        """Return the places of all messages with a word that begins with `root`.

        Other messages may be among them: the index has only the first 9 characters of a word.
        """
        prefix, places = root[:_WIDTH], ""
        at = bisect_left(range(len(self._entries)), prefix, key=self._word_at)
        while self._entries.startswith(prefix, at + 1):
            end = self._entries.index(_ENDS, at + 1)
            places += self._entries[at:end].partition(_PLACES)[2]
            at = end
        return set(bytes.fromhex(places))

    def _word_at(self, place: int) -> str:
        start = self._entries.rfind(_ENDS, 0, place + 1) + 1
        return self._entries[start : start + _WIDTH]


def packed(texts: Sequence[str | None]) -> str:
    """Build the word index of messages' texts. A message with None is not indexed."""
    places: defaultdict[str, bytearray] = defaultdict(bytearray)
    for place, text in enumerate(texts):
        for word in {term[:_WIDTH] for term in _written(text or "")} - {""}:
            places[word].append(place)
    count = sum(1 for text in texts if text is not None)
    entries = sorted(f"{word}{_PLACES}{numbers.hex()}" for word, numbers in places.items())
    return _ENDS.join([f"{_MARK} {count}", *entries, _MARK])


def _written(text: str) -> set[str]:
    """Return the words of a text, unstemmed, in lower case; see `retrieval.words.roots`."""
    if text.isascii():
        return set(_ASCII_WORD.findall(text.lower()))
    return set(chain.from_iterable(map(_parted, WORD.findall(text.casefold()))))


def _parted(word: str) -> Iterator[str]:
    start = 0
    for run in RUN.finditer(word):
        yield word[start : run.start()]
        yield run[0]
        yield from pairs(run[0])
        start = run.end()
    yield word[start:]


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
_MESSAGES = (  # all in one row: 4 times faster than a row for each
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


class StoredMessage(NamedTuple):
    """A message as stored."""

    role: str
    text: str  # the text, if `body` is empty
    body: str  # the message as JSON; empty if it has only a role and a text
    micros: int  # the time, in microseconds since 1970


class Part(NamedTuple):
    """A part of a session's messages."""

    session: str
    seqs: Sequence[int]
    size: int  # number of messages
    # Returns the indexes in `seqs` of all messages with a word that begins with a root. Other
    # messages may be among them.
    holding: Callable[[str], Collection[int]]


class LogFile:
    """A memory's SQLite file, open in a read transaction, which does not see later changes."""

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
        """Yield about `most` messages of a user and the assistant, the newest session first.

        The session `without` is left out.
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
        """Yield the messages of a session: the indexed messages, then at most `most` others."""
        low = high = 0
        of = (self._namespace, session_id)
        for first, last, body in self._file.execute(_WORDS, of):
            if low and first != high + 1:
                break
            try:
                places = WordPlaces(_text(body))
            except ValueError:  # then the messages are read instead
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
        row = self._file.execute(_MESSAGE, (self._namespace, session, seq)).fetchone()
        return None if row is None else StoredMessage(*row)

    def close(self) -> None:
        self._file.close()


def _text(body: str) -> str:
    record = json.loads(body)
    if not isinstance(record, dict) or not isinstance(record.get("text"), str):
        raise ValueError("The record is not readable by this release.")
    return str(record["text"])


def _holding(texts: Sequence[str], root: str) -> list[int]:
    return [place for place, text in enumerate(texts) if root in text]
