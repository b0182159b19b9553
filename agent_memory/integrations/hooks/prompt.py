"""Finds messages for a prompt in a short-lived process, by words alone.

The messages are read directly from the SQLite file, because the rest of the library takes longer to
load. The file is never written, and one version of the tables is supported.

Words have the same weights as in the library's recall. The code does not use `retrieval.features`,
because importing numpy takes longer than the whole search.
"""

from __future__ import annotations

import json
import math
import os
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from heapq import nsmallest
from time import gmtime, strftime
from typing import NamedTuple

from agent_memory.errors import StoreUnavailable
from agent_memory.integrations.transcripts import render
from agent_memory.retrieval.bm25 import TURN_LENGTH, damping, odds
from agent_memory.retrieval.languages import languages_of
from agent_memory.retrieval.words import roots, words

_VERSION = 1
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
            self._file.execute("PRAGMA query_only = ON")
            self._file.execute("BEGIN")
            version = self._file.execute(
                "SELECT value FROM agent_memory_meta WHERE name = 'schema_version'"
            ).fetchone()
            if version != (_VERSION,):
                raise StoreUnavailable(
                    f"{path} has tables of another version than {_VERSION}. Upgrade the "
                    "installation of agent-memory that runs the hooks, and open the memory once."
                )
        except BaseException:
            self.close()
            raise

    def parts(self, user_id: str, most: int, without: str) -> Iterator[Part]:
        """Yield up to `most` messages of the sessions except `without`, newest session first."""
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


_MOST_ASKED = 2_000  # maximum characters of a prompt that are used, half from each end
_MOST_WORDS = 24
_MOST_PLACES = 2**32  # message `place` of part `n` has the number `n * _MOST_PLACES + place`
_LOOKED_AT = 60
_ENOUGH = 500
_TELLING = 8  # number of the rarest words of a prompt that define the threshold of a match
_LEAST = 0.3
_IDLE = (
    "ok okay yes yep no nope thanks thank great good nice cool sure done continue go ahead proceed "
    "please again try now next fix help want need make let lgtm"
)
_FILLER = frozenset(_IDLE.split())


class Hit(NamedTuple):
    """A message relevant to a prompt."""

    micros: int
    role: str
    text: str
    score: float


def relevant_messages(
    prompt: str, parts: Iterable[Part], read: Callable[[str, int], StoredMessage | None], limit: int
) -> list[Hit]:
    """Return messages relevant to a prompt, best first. `read(session, seq)` reads a message."""
    prompt = _ends(prompt)
    languages = languages_of(prompt)
    terms = [word for word in dict.fromkeys(words(prompt, languages)) if word not in _FILLER]
    if not terms:
        return []
    root_of = roots(prompt, languages)
    holding, where, size = _holding(root_of, terms, parts)
    rarity = {word: math.log1p(odds(size, len(holders))) for word, holders in holding.items()}
    least = _LEAST * sum(sorted(rarity.values(), reverse=True)[:_TELLING])
    hits = []
    for which in _first_look(holding, rarity):
        session, seqs = where[which // _MOST_PLACES]
        message = read(session, seqs[which % _MOST_PLACES])
        if message is None:
            continue
        role, text = _spoken(message)
        counts = Counter(words(text, languages))
        shared = [word for word in rarity if counts[word]]
        if len(shared) < min(2, len(terms)) or sum(map(rarity.__getitem__, shared)) < least:
            continue
        if all(word in terms for word in counts):
            continue  # the message only repeats words of the prompt
        against = damping(counts.total(), TURN_LENGTH)
        score = sum(rarity[word] * counts[word] / (counts[word] + against) for word in shared)
        hits.append(Hit(message.micros, role, text, score))
    return _different(sorted(hits, key=lambda hit: -hit.score), limit)


def _ends(prompt: str) -> str:
    half = _MOST_ASKED // 2
    return prompt if len(prompt) <= _MOST_ASKED else f"{prompt[:half]} {prompt[-half:]}"


def _holding(
    root_of: Mapping[str, str], terms: Sequence[str], parts: Iterable[Part]
) -> tuple[dict[str, list[int]], list[tuple[str, Sequence[int]]], int]:
    """Return for each word of a prompt the numbers of the messages that contain its root.

    Also return the session and the seqs of each part, and the total number of messages. Only the 24
    longest words of a prompt are searched.
    """
    looked = sorted(terms, key=len, reverse=True)[:_MOST_WORDS]
    begun = {word: root for word in looked if (root := root_of.get(word, word))}
    holding: dict[str, list[int]] = {}
    where: list[tuple[str, Sequence[int]]] = []
    count = 0
    for part in parts:
        base = len(where) * _MOST_PLACES
        for word, root in begun.items():
            if places := [base + place for place, text in enumerate(part.texts) if root in text]:
                holding.setdefault(word, []).extend(places)
        where.append((part.session, part.seqs))
        count += len(part.texts)
    return holding, where, count


def _first_look(holding: dict[str, list[int]], rarity: dict[str, float]) -> list[int]:
    """Return the 60 messages with the most and rarest words of the prompt, best first."""
    scores: dict[int, float] = {}
    for word in sorted(holding, key=lambda term: len(holding[term])):
        among: Iterable[int] = holding[word]
        if len(scores) >= _ENOUGH:  # messages with only common words cannot rank high
            among = scores.keys() & among
        for which in among:
            scores[which] = scores.get(which, 0.0) + rarity[word]
    return nsmallest(_LOOKED_AT, scores, key=lambda which: (-scores[which], which))


def _spoken(stored: StoredMessage) -> tuple[str, str]:
    if not stored.body:
        return stored.role, stored.text
    message = json.loads(stored.body)
    content = message.get("content")
    if isinstance(content, list):
        parts = (part.get("text") for part in content if isinstance(part, dict))
        content = " ".join(part for part in parts if isinstance(part, str))
    return message["role"], content if isinstance(content, str) else ""


def _different(hits: list[Hit], limit: int) -> list[Hit]:
    """Return the best messages. Of messages with equal texts, only the best one is returned."""
    unique: dict[str, Hit] = {}
    for hit in hits:
        unique.setdefault(" ".join(hit.text.split()).casefold(), hit)
    return list(unique.values())[:limit]


MOST_SAID = 20_000
"""Number of newest messages that are searched."""

LIMIT = 5
"""Number of messages that are quoted."""

_NAMESPACE = "default"
_LONGEST = 600  # maximum characters of a quote


def recalled(path: str, user_id: str, prompt: str, session_id: str) -> str:
    """Return quotes of a user's other sessions that are relevant to a prompt; "" if none are."""
    try:
        with closing(LogFile(path, _NAMESPACE)) as file:
            parts = file.parts(user_id, MOST_SAID, session_id)
            hits = relevant_messages(prompt, parts, file.message, LIMIT)
    except sqlite3.Error as error:
        raise StoreUnavailable(f"{path} cannot be read: {error}.") from error
    return render({"log": [f"[{_day(hit.micros)}] {hit.role}: {cut(hit.text)}" for hit in hits]})


def _day(micros: int) -> str:
    return strftime("%Y-%m-%d", gmtime(micros // 1_000_000))


def cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."
