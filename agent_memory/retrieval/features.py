"""Features of a record: its words, vector, word pieces and place in a session.

Words are numbers with weights. `Postings` is an inverted index over them.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from functools import lru_cache
from itertools import chain
from operator import itemgetter
from typing import NamedTuple, Self

import numpy as np

from agent_memory.core.text import word_count
from agent_memory.core.transcript import WHOLE, Part
from agent_memory.retrieval.dates import MONTHS
from agent_memory.retrieval.languages import ENGLISH, elected, vote_of
from agent_memory.retrieval.statements import question_share
from agent_memory.retrieval.vectors import Encoding, Tokens
from agent_memory.retrieval.words import Cached, forms_of

TURN_LENGTH = 20.0
"""Words in a message of usual length, without stop words."""

# Okapi BM25 (Robertson and Zaragoza, "The Probabilistic Relevance Framework", 2009), but texts are
# compared with a fixed length, so that adding texts does not change weights
_K1 = 0.9  # saturation of word frequency: lower values make repetitions count less
_B = 0.75  # effect of the text length, from 0 to 1
_PLAIN = 0.25  # count of a word's plain form if this form is not among the stems


class Terms(NamedTuple):
    """The words of a text, as a sparse vector."""

    ids: np.ndarray  # distinct word numbers, uint32
    weights: np.ndarray  # the weight of each word in the text, float32 above 0


NO_TERMS = Terms(np.empty(0, np.uint32), np.empty(0, np.float32))


def term_of(word: str) -> int:
    """Return the number of a word, which is the same on every machine.

    About one word in 100,000 shares its number with another word, which is harmless.
    """
    return zlib.crc32(word.encode("utf-8", "surrogatepass"))


class Written(NamedTuple):
    """The word numbers of one chunk, which is the text between two blanks."""

    ids: tuple[int, ...]  # the numbers of the words' stems, in each language of the text
    # The numbers of the plain forms that are not among the stems. They match questions in another
    # language.
    plain: tuple[int, ...]
    size: int  # number of words; several forms of a word count once
    vote: int = 0  # the languages that the chunk votes for; see `agent_memory.retrieval.languages`


_IDS, _OF_PLAIN, _SIZE, _VOTE = map(itemgetter, range(4))


def written(text: str, languages: frozenset[str] | None = None) -> list[Written]:
    """Return the word numbers of each chunk of a text.

    `languages` are those of the words in Latin letters; None to detect them.
    """
    pieces = text.split()
    read = _in_english.each(pieces)
    if languages is None:
        languages = elected(map(_VOTE, read))
    return read if languages == ENGLISH else _written.each(pieces, languages)


@Cached
def _in_english(piece: str) -> Written:
    return _written(piece, ENGLISH)


@Cached
def _written(piece: str, languages: frozenset[str]) -> Written:
    forms = forms_of(piece, languages)
    return Written(
        tuple(term_of(stem) for form in forms for stem in form.stems),
        tuple(term_of(form.plain) for form in forms if form.plain not in form.stems),
        len(forms),
        vote_of(piece),
    )


def weighted(pieces: Sequence[Written], usual: float) -> Terms:
    """Return the weight of each word in a text. `usual` is the usual length of a text, in words."""
    counts: dict[int, float] = {**Counter(chain.from_iterable(map(_IDS, pieces)))}
    for number in chain.from_iterable(map(_OF_PLAIN, pieces)):
        counts[number] = counts.get(number, 0) + _PLAIN
    if not counts:
        return NO_TERMS
    times = np.fromiter(counts.values(), np.float32, len(counts))
    against = np.float32(_K1 * (1 - _B + _B * sum(map(_SIZE, pieces)) / usual))
    weights = (_K1 + 1) * times / (times + against)
    # stores hold half precision
    rounded = weights.astype(np.float16).astype(np.float32)
    return Terms(np.fromiter(counts, np.uint32, len(counts)), rounded)


class Postings(NamedTuple):
    """An inverted index: the words of records that are numbered from 0. Immutable."""

    terms: np.ndarray  # distinct word numbers, uint32, sorted
    # the first posting of each word, followed by the total number of postings, uint32
    starts: np.ndarray
    places: np.ndarray  # the record of each posting, uint16, ascending within a word
    weights: np.ndarray  # the weight of each posting, float16, as stores hold it

    @classmethod
    def of(cls, texts: Sequence[Terms]) -> Self:
        sizes = [len(text.ids) for text in texts]
        places = np.repeat(np.arange(len(texts), dtype=np.uint16), sizes)
        if not len(places):
            return cls._sorted(NO_TERMS.ids, places, np.empty(0, np.float16))
        ids = np.concatenate([text.ids for text in texts])
        return cls._sorted(ids, places, np.concatenate([text.weights for text in texts]))

    @classmethod
    def joined(cls, parts: Sequence[tuple[Self, int]]) -> Self:
        """Concatenate several indexes, each given with the number of its records."""
        first, moved = 0, []
        for part, count in parts:
            moved.append(part.places + np.uint16(first))
            first += count
        return cls._sorted(
            np.concatenate([part.ids for part, _ in parts]),
            np.concatenate(moved),
            np.concatenate([part.weights for part, _ in parts]),
        )

    @classmethod
    def _sorted(cls, ids: np.ndarray, places: np.ndarray, weights: np.ndarray) -> Self:
        order = np.argsort(ids, kind="stable")
        ids = ids[order]
        starts = np.flatnonzero(np.diff(ids, prepend=ids[:1] + 1))
        return cls(
            ids[starts].astype(np.uint32, copy=False),
            np.append(starts, len(ids)).astype(np.uint32),
            places[order],
            weights[order].astype(np.float16, copy=False),
        )

    @property
    def nbytes(self) -> int:
        return sum(column.nbytes for column in self)

    @property
    def ids(self) -> np.ndarray:
        """The word number of each posting."""
        return np.repeat(self.terms, np.diff(self.starts))

    def only(self, keep: np.ndarray) -> Self:
        """Return the postings of the records that `keep` selects, renumbered."""
        after = (np.cumsum(keep) - 1).astype(np.uint16)
        mask = keep[self.places]
        return self._sorted(self.ids[mask], after[self.places[mask]], self.weights[mask])

    def texts(self, count: int) -> list[Terms]:
        """Return the terms of each of `count` records, sorted by word number."""
        order = np.argsort(self.places, kind="stable")
        ids, weights = self.ids[order], self.weights[order].astype(np.float32)
        ends = np.cumsum(np.bincount(self.places, minlength=count)).tolist()
        return [
            Terms(ids[start:end], weights[start:end])
            for start, end in zip([0, *ends], ends, strict=False)
        ]


PLACE = np.dtype(
    [
        *(("session", "<u4"), ("seq", "<u4"), ("day", "<u4")),
        *(("part", "<u2"), ("words", "<u2"), ("asks", "u1")),
    ]
)
"""The place and size of a record. `session` is `term_of` the session id. `seq` is 0 for a record
without neighbours. `day` is `date.toordinal`. `part` is the number of the passage. `words` counts
the words of the record. `asks` is the percentage of the message's words that are in questions."""

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
    local_time: datetime
    is_user: bool  # whether the speaker is a user, rather than an assistant
    part: Part = WHOLE  # the place of the passage in its message
    session_id: str = ""
    seq: int = 0

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
                _terms([*_day(turn.local_time.date()), *pieces], _speakers(turn))
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
    words = min(int(word_count(turn.text)), _MOST_WORDS)
    asks = question_share(turn.text) if turn.part.of == 1 else 0
    day = turn.local_time.toordinal()
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
