"""Features of a record: its words, vector, word pieces and place in a session."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from functools import lru_cache
from typing import Self

import numpy as np

from agent_memory.core.transcript import WHOLE, Part
from agent_memory.retrieval.bm25 import TURN_LENGTH
from agent_memory.retrieval.dates import MONTHS
from agent_memory.retrieval.languages import ENGLISH
from agent_memory.retrieval.postings import NO_TERMS, Terms, Written, term_of, weighted, written
from agent_memory.retrieval.statements import asking
from agent_memory.retrieval.vectors import Encoding, Tokens, rounded_rows

PLACE = np.dtype(
    [
        *(("session", "<u4"), ("seq", "<u4"), ("day", "<u4")),
        *(("part", "<u2"), ("words", "<u2"), ("asks", "u1")),
    ]
)
"""The place and size of a record. `session` is `term_of` the session id. `seq` is 0 for a record
without neighbours. `day` is `date.toordinal`. `part` is the number of the passage. `words` counts
the words of the message. `asks` is the percentage of the message's words that are in questions."""

SPEAKER = "\0speaker "
"""Prefix of speaker terms. No word of a text contains a zero byte."""

USER = f"{SPEAKER}\0user"

ASSISTANT = f"{SPEAKER}assistant"

ROLES = frozenset(("user", "assistant", "model", "system", "tool"))

_MOST_WORDS = 2**16 - 1
_DAYS = 4_000


@dataclass(frozen=True, slots=True)
class Turn:
    """One message, or one passage of a long message, as it is indexed."""

    speaker: str  # a name, or a role
    text: str
    said_at: datetime
    is_user: bool  # whether the speaker is a user, rather than an assistant
    part: Part = WHOLE  # the place of the passage in its message
    session_id: str = ""
    seq: int = 0
    words: int = 0  # number of words of the whole message; 0 to count those of `text`

    def __str__(self) -> str:
        """Return the text to index, after the speaker's name.

        A role is not added, because it would blur the text's meaning.
        """
        return self.text if self.speaker in ROLES else f"{self.speaker}: {self.text}"


@dataclass(frozen=True, slots=True)
class Features:
    """The features of several records, in order."""

    # (n, dimension) float32 rows of unit length; zeros for a record that is not encoded yet. (n, 0)
    # without an embedder.
    meaning: np.ndarray
    tokens: Tokens  # the word pieces of the records
    words: Sequence[Terms]  # the terms of each record
    places: np.ndarray  # (n,) rows of `PLACE`

    def __len__(self) -> int:
        return len(self.meaning)

    @property
    def dimension(self) -> int:
        return int(self.meaning.shape[1])

    @classmethod
    def of_vectors(cls, vectors: np.ndarray) -> Self:
        """Build from vectors alone, (n, dimension) of unit length."""
        matrix = np.array(vectors, np.float32, ndmin=2)
        return cls(matrix, Tokens.none(len(matrix)), [NO_TERMS] * len(matrix), _alone(len(matrix)))

    @classmethod
    def of_words(cls, words: Sequence[Terms]) -> Self:
        count = len(words)
        return cls(np.empty((count, 0), np.float32), Tokens.none(count), words, _alone(count))

    @classmethod
    def of_texts(cls, texts: Sequence[tuple[str, datetime]]) -> Self:
        """Build from the words of texts and of the texts' dates."""
        return cls.of_words([_terms([*_day(at.date()), *written(text)]) for text, at in texts])

    @classmethod
    def of_statements(cls, texts: Sequence[str], encodings: Sequence[Encoding]) -> Self:
        """Build from short self-contained texts, such as facts and notes."""
        rows = [encoding.vector for encoding in encodings]
        meaning = np.stack(rows) if rows else np.empty((0, 0), np.float32)
        tokens = Tokens.of([encoding.tokens for encoding in encodings])
        return cls(meaning, tokens, [_terms(written(text)) for text in texts], _alone(len(texts)))

    @classmethod
    def of_turns(
        cls, turns: Sequence[Turn], encode: Callable[[Sequence[str]], Sequence[Encoding]]
    ) -> Self:
        """Build from turns. For `encode` see `CachedEmbedder.encode`."""
        texts = [str(turn) for turn in turns]
        encodings = encode(texts)
        rows = [encoding.vector for encoding in encodings]
        chunks = [written(text) for text in texts]
        return cls(
            np.stack(rows).astype(np.float32) if rows else np.empty((0, 0), np.float32),
            Tokens.of([encoding.tokens for encoding in encodings]),
            [
                _terms([*_day(turn.said_at.date()), *pieces], _speakers(turn))
                for turn, pieces in zip(turns, chunks, strict=True)
            ],
            np.array([_place(turn) for turn in turns], PLACE),
        )

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        return cls(
            np.concatenate([part.meaning for part in parts]),
            Tokens.joined([part.tokens for part in parts]),
            [terms for part in parts for terms in part.words],
            np.concatenate([part.places for part in parts]),
        )

    def part(self, since: int, until: int) -> Features:
        """Return the features of the records from `since` to before `until`."""
        return self.at(range(len(self))[since:until])

    def at(self, places: Sequence[int]) -> Features:
        rows = list(places)
        words = [self.words[place] for place in rows]
        return Features(self.meaning[rows], self.tokens.at(rows), words, self.places[rows])


def _alone(count: int) -> np.ndarray:
    """Return `PLACE` rows of records without neighbours (seq 0)."""
    return np.zeros(count, PLACE)


def _place(turn: Turn) -> tuple[int, ...]:
    words = min(turn.words or len(turn.text.split()), _MOST_WORDS)
    asks = asking(turn.text) if turn.part.of == 1 else 0
    day = turn.said_at.toordinal()
    return term_of(turn.session_id), turn.seq, day, turn.part.number, words, asks


def _speakers(turn: Turn) -> list[int]:
    named = [f"{SPEAKER}{word}" for word in turn.speaker.casefold().split()[:1]]
    return [term_of(name) for name in (*named, *([USER] if turn.is_user else []))]


def _terms(pieces: Sequence[Written], speakers: Sequence[int] = ()) -> Terms:
    terms = weighted(pieces, TURN_LENGTH)
    if not speakers:
        return terms
    ids = np.concatenate([terms.ids, np.array(speakers, np.uint32)])
    weights = np.concatenate([terms.weights, np.ones(len(speakers), np.float32)])
    return Terms(ids, weights)


@lru_cache(_DAYS)
def _day(day: date) -> list[Written]:
    return written(f"{day.day} {MONTHS[day.month - 1]} {day.year}", ENGLISH)


def rounded(features: Features) -> Features:
    """Return features as a store with compact segments returns them: rounded, terms in order."""
    worded = np.array([bool(len(words.ids)) for words in features.words], np.bool_)
    meaning = rounded_rows(features.meaning, worded)
    words = [_in_order(terms) for terms in features.words]
    return Features(meaning, features.tokens, words, features.places)


def _in_order(terms: Terms) -> Terms:
    order = np.argsort(terms.ids)
    return Terms(terms.ids[order], terms.weights[order])
