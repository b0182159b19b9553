"""What a turn is found by: its words and its meaning, alone and within its surroundings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from functools import lru_cache
from typing import Self

import numpy as np

from agent_memory.retrieval.dates import MONTHS
from agent_memory.retrieval.surroundings import claims
from agent_memory.retrieval.terms import (
    NO_TERMS,
    SURROUNDED_LENGTH,
    TURN_LENGTH,
    Terms,
    asked,
    terms_of,
    weighted,
)

_DAYS = 4_000


@dataclass(frozen=True, slots=True)
class Turn:
    """One thing that was said.

    Attributes:
        speaker: A name, or a role.
        text: What was said.
        said_at: When.
        is_user: Whether a user said it, rather than an assistant.
    """

    speaker: str
    text: str
    said_at: datetime
    is_user: bool

    def __str__(self) -> str:
        return f"{self.speaker}: {self.text}"


@dataclass(frozen=True, slots=True)
class Features:
    """What some records are found by, in their order.

    Attributes:
        meaning: (n, dimension) float32 rows of unit length; no columns where nothing embeds.
        meaning_around: The same of each record within its surroundings.
        words: The words of each.
        words_around: The words of each within its surroundings.
    """

    meaning: np.ndarray
    meaning_around: np.ndarray
    words: Sequence[Terms]
    words_around: Sequence[Terms]

    def __len__(self) -> int:
        return len(self.meaning)

    @property
    def dimension(self) -> int:
        """Numbers in a vector of meaning."""
        return int(self.meaning.shape[1])

    @classmethod
    def of_vectors(cls, vectors: np.ndarray) -> Self:
        """Those of records that only vectors are known of: (n, dimension), of unit length."""
        matrix = np.array(vectors, np.float32, ndmin=2)
        none = [NO_TERMS] * len(matrix)
        return cls(matrix, np.zeros_like(matrix), none, none)

    @classmethod
    def of_turns(
        cls,
        turns: Sequence[Turn],
        since: int,
        embed: Callable[[Sequence[str]], np.ndarray],
    ) -> Self:
        """Those of the turns of one conversation, from a place on.

        What a turn means within its surroundings is the mean of the turns', by the words that each
        has in it: that finds as much as embedding the surroundings, and costs nothing.

        Args:
            turns: In order; those before `since` are only surroundings.
            since: The place.
            embed: As `Embedder.embed`.
        """
        meaning = np.asarray(embed([str(turn) for turn in turns]), np.float32)
        written = [[terms_of(piece) for piece in str(turn).split()] for turn in turns]
        lengths = [len(pieces) for pieces in written]
        around = np.zeros((len(turns) - since, meaning.shape[1]), np.float32)
        words, words_around = [], []
        for place in range(since, len(turns)):
            day = _day(turns[place].said_at.date())
            claimed = claims(lengths, place)
            pieces = [day]
            for at, size in claimed:
                around[place - since] += size * meaning[at]
                pieces += written[at][lengths[at] - size :]
            words.append(weighted([day, *written[place]], TURN_LENGTH))
            words_around.append(weighted(pieces, SURROUNDED_LENGTH))
        norms = np.linalg.norm(around, axis=1, keepdims=True)
        around = np.divide(around, norms, out=around, where=norms > 0)
        # as stores keep them
        around = around.astype(np.float16).astype(np.float32)
        return cls(meaning[since:], around, words, words_around)


@dataclass(frozen=True, slots=True)
class Query:
    """What a question looks for.

    Attributes:
        meaning: (dimension,) of unit length; empty to go by words alone.
        words: The numbers of its words, each once; none to go by meaning alone.
    """

    meaning: np.ndarray
    words: tuple[int, ...] = ()

    @classmethod
    def of(cls, question: str, vector: np.ndarray) -> Self:
        """Of a question and its vector."""
        return cls(vector, asked(question))


@lru_cache(_DAYS)
def _day(day: date) -> tuple[int, ...]:
    named = (str(day.day), MONTHS[day.month - 1], str(day.year))
    return tuple(term for piece in named for term in terms_of(piece))
