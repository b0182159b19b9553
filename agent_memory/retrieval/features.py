"""What a turn is found by: its words and its meaning, alone and within its surroundings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Self

import numpy as np

from agent_memory.core.long_texts import WHOLE, Part
from agent_memory.retrieval.beside import Beside
from agent_memory.retrieval.bm25 import SURROUNDED_LENGTH, TURN_LENGTH
from agent_memory.retrieval.dates import MONTHS
from agent_memory.retrieval.languages import ENGLISH
from agent_memory.retrieval.surroundings import FARTHEST, claims
from agent_memory.retrieval.terms import (
    NO_TERMS,
    Terms,
    Written,
    asked,
    weighted,
    written,
)

if TYPE_CHECKING:
    from agent_memory.core.records import Record
    from agent_memory.retrieval.index import SegmentIndex

_DAYS = 4_000


@dataclass(frozen=True, slots=True)
class Turn:
    """One thing that was said, or a passage of it where that is long.

    Attributes:
        speaker: A name, or a role.
        text: What was said.
        said_at: When.
        is_user: Whether a user said it, rather than an assistant.
        part: Which passage of a long message it is.
    """

    speaker: str
    text: str
    said_at: datetime
    is_user: bool
    part: Part = WHOLE

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
    def of_texts(cls, said: Sequence[tuple[str, datetime]]) -> Self:
        """Those of texts, each said at a time, that are found by their words alone."""
        none = np.empty((len(said), 0), np.float32)
        words = [weighted([*_day(at.date()), *written(text)], TURN_LENGTH) for text, at in said]
        return cls(none, none, words, [NO_TERMS] * len(said))

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Those of several, one after the other."""
        return cls(
            np.concatenate([part.meaning for part in parts]),
            np.concatenate([part.meaning_around for part in parts]),
            [terms for part in parts for terms in part.words],
            [terms for part in parts for terms in part.words_around],
        )

    def part(self, since: int, until: int) -> Features:
        """Those of some that follow each other."""
        rows = slice(since, until)
        words, around = self.words[rows], self.words_around[rows]
        return Features(self.meaning[rows], self.meaning_around[rows], words, around)

    def at(self, places: Sequence[int]) -> Features:
        """Those of some, by their places."""
        words, around = (
            [each[place] for place in places] for each in (self.words, self.words_around)
        )
        return Features(self.meaning[places], self.meaning_around[places], words, around)

    @classmethod
    def of_turns(
        cls,
        turns: Sequence[Turn],
        since: int,
        embed: Callable[[Sequence[str]], np.ndarray],
    ) -> Self:
        """Those of the turns of one conversation, from a place on.

        What a turn means within its surroundings is the mean of the turns', by the words that each
        has in it: that finds as much as embedding the surroundings, and costs nothing. Of a long
        message before it, its last passage is a turn; so is what was said before the message to
        each of its passages.

        Args:
            turns: In order; those before `since` are only surroundings.
            since: The place.
            embed: As `Embedder.embed`.
        """
        meaning = np.asarray(embed([str(turn) for turn in turns]), np.float32)
        said = [written(str(turn)) for turn in turns]
        lengths = [len(pieces) for pieces in said]
        around = np.zeros((len(turns) - since, meaning.shape[1]), np.float32)
        words, words_around = [], []
        before = [at for at in range(since) if turns[at].part.is_last][-FARTHEST:]
        for place in range(since, len(turns)):
            day = _day(turns[place].said_at.date())
            near = [*before, place]
            if turns[place].part.is_last:
                before = near[-FARTHEST:]
            pieces = [*day]
            for nth, size in claims([lengths[at] for at in near], len(near) - 1):
                at = near[nth]
                around[place - since] += size * meaning[at]
                pieces += said[at][lengths[at] - size :]
            words.append(weighted([*day, *said[place]], TURN_LENGTH))
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
        beside: Records that are looked at as if they were stored with the others.
    """

    meaning: np.ndarray
    words: tuple[int, ...] = ()
    beside: Beside | None = None

    @classmethod
    def of(cls, question: str, vector: np.ndarray) -> Self:
        """Of a question and its vector."""
        return cls(vector, asked(question))

    def with_beside(self, index: SegmentIndex, records: dict[str, Record]) -> Query:
        """The same, over records too that are not stored yet."""
        stored = tuple((word,) for word in self.words)
        return replace(self, beside=Beside(index, records, self.words, stored))


@lru_cache(_DAYS)
def _day(day: date) -> list[Written]:
    return written(f"{day.day} {MONTHS[day.month - 1]} {day.year}", ENGLISH)
