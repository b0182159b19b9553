"""The features of a record: its words, its meaning, its word pieces, its place in a session."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from functools import lru_cache
from typing import Self

import numpy as np

from agent_memory.core.long_texts import WHOLE, Part
from agent_memory.retrieval.bm25 import TURN_LENGTH
from agent_memory.retrieval.dates import MONTHS
from agent_memory.retrieval.encoding import Encoding
from agent_memory.retrieval.languages import ENGLISH
from agent_memory.retrieval.telling import asking
from agent_memory.retrieval.terms import NO_TERMS, Terms, Written, term_of, weighted, written
from agent_memory.retrieval.tokens import Tokens

PLACE = np.dtype(
    [("session", "<u4"), ("seq", "<u4"), ("part", "<u2"), ("words", "<u2"), ("asks", "u1")]
)
"""Where a record stands and how long it is: the session's number, seq (0 for a record without
neighbours) and passage; the words of its message; how much of it asks, in percent."""

SPEAKER = "\0speaker "
"""Begins the term that stands for who speaks: no word of a text has a zero byte."""

USER = f"{SPEAKER}\0user"

ROLES = frozenset(("user", "assistant", "model", "system", "tool"))

_MOST_WORDS = 2**16 - 1
_DAYS = 4_000


@dataclass(frozen=True, slots=True)
class Turn:
    """One message, or a passage of a long one.

    Attributes:
        speaker: A name, or a role.
        text: The text.
        said_at: When.
        is_user: Whether a user said it, rather than an assistant.
        part: Which passage of a long message it is.
        session_id: The session.
        seq: The message's number there.
        words: Words of the whole message; 0 for those of `text`.
    """

    speaker: str
    text: str
    said_at: datetime
    is_user: bool
    part: Part = WHOLE
    session_id: str = ""
    seq: int = 0
    words: int = 0

    def __str__(self) -> str:
        """The text as it is found: after the speaker's name, where it has one. A role would blur
        its meaning."""
        return self.text if self.speaker in ROLES else f"{self.speaker}: {self.text}"


@dataclass(frozen=True, slots=True)
class Features:
    """The features of some records, in their order.

    Attributes:
        meaning: (n, dimension) float32 rows of unit length; a row of zeros has not been encoded
            yet. No columns where nothing embeds.
        tokens: Their word pieces.
        words: The words of each.
        places: (n,) of `PLACE`.
    """

    meaning: np.ndarray
    tokens: Tokens
    words: Sequence[Terms]
    places: np.ndarray

    def __len__(self) -> int:
        return len(self.meaning)

    @property
    def dimension(self) -> int:
        """Numbers in a vector of meaning."""
        return int(self.meaning.shape[1])

    @classmethod
    def of_vectors(cls, vectors: np.ndarray) -> Self:
        """Features of records of which only vectors are known: (n, dimension), of unit length."""
        matrix = np.array(vectors, np.float32, ndmin=2)
        return cls(matrix, Tokens.none(len(matrix)), [NO_TERMS] * len(matrix), _alone(len(matrix)))

    @classmethod
    def of_words(cls, words: Sequence[Terms]) -> Self:
        """Features of texts that are found by their words alone."""
        count = len(words)
        return cls(np.empty((count, 0), np.float32), Tokens.none(count), words, _alone(count))

    @classmethod
    def of_texts(cls, said: Sequence[tuple[str, datetime]]) -> Self:
        """The same, of texts and their days."""
        return cls.of_words([_terms([*_day(at.date()), *written(text)]) for text, at in said])

    @classmethod
    def of_statements(cls, texts: Sequence[str], encodings: Sequence[Encoding]) -> Self:
        """Features of short texts that stand for themselves, such as facts and notes."""
        rows = [encoding.vector for encoding in encodings]
        meaning = np.stack(rows) if rows else np.empty((0, 0), np.float32)
        tokens = Tokens.of([encoding.tokens for encoding in encodings])
        return cls(meaning, tokens, [_terms(written(text)) for text in texts], _alone(len(texts)))

    @classmethod
    def of_turns(
        cls, turns: Sequence[Turn], encode: Callable[[Sequence[str]], Sequence[Encoding]]
    ) -> Self:
        """Features of turns.

        Args:
            turns: The turns.
            encode: As `Embedder.encode`.
        """
        texts = [str(turn) for turn in turns]
        encodings = encode(texts)
        rows = [encoding.vector for encoding in encodings]
        said = [written(text) for text in texts]
        return cls(
            np.stack(rows).astype(np.float32) if rows else np.empty((0, 0), np.float32),
            Tokens.of([encoding.tokens for encoding in encodings]),
            [
                _terms([*_day(turn.said_at.date()), *pieces], _speakers(turn))
                for turn, pieces in zip(turns, said, strict=True)
            ],
            np.array([_place(turn) for turn in turns], PLACE),
        )

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Several, one after the other."""
        return cls(
            np.concatenate([part.meaning for part in parts]),
            Tokens.joined([part.tokens for part in parts]),
            [terms for part in parts for terms in part.words],
            np.concatenate([part.places for part in parts]),
        )

    def part(self, since: int, until: int) -> Features:
        """The features of some records that follow each other."""
        return self.at(range(len(self))[since:until])

    def at(self, places: Sequence[int]) -> Features:
        """The features of some records, by their places."""
        rows = list(places)
        words = [self.words[place] for place in rows]
        return Features(self.meaning[rows], self.tokens.at(rows), words, self.places[rows])


def _alone(count: int) -> np.ndarray:
    """Places of records that have no neighbours (seq 0)."""
    return np.zeros(count, PLACE)


def _place(turn: Turn) -> tuple[int, ...]:
    words = min(turn.words or len(turn.text.split()), _MOST_WORDS)
    asks = asking(turn.text) if turn.part.of == 1 else 0
    return term_of(turn.session_id), turn.seq, turn.part.number, words, asks


def _speakers(turn: Turn) -> list[int]:
    named = [f"{SPEAKER}{word}" for word in turn.speaker.casefold().split()[:1]]
    return [term_of(one) for one in (*named, *([USER] if turn.is_user else []))]


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
