"""The words of texts, as numbers with weights, and an inverted index over them."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from operator import itemgetter
from typing import NamedTuple, Self

import numpy as np

from agent_memory.retrieval.bm25 import K1, damping
from agent_memory.retrieval.languages import ENGLISH, elected, vote_of
from agent_memory.retrieval.words import Cached, forms_of

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

    Args:
        languages: Languages of the words in Latin letters; None to detect them.
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
    against = np.float32(damping(sum(map(_SIZE, pieces)), usual))
    weights = (K1 + 1) * times / (times + against)
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
            return cls._sorted(_NONE, places, np.empty(0, np.float16))
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
        there = keep[self.places]
        return self._sorted(self.ids[there], after[self.places[there]], self.weights[there])

    def texts(self, count: int) -> list[Terms]:
        """Return the terms of each of `count` records, sorted by word number."""
        order = np.argsort(self.places, kind="stable")
        ids, weights = self.ids[order], self.weights[order].astype(np.float32)
        ends = np.cumsum(np.bincount(self.places, minlength=count)).tolist()
        return [
            Terms(ids[start:end], weights[start:end])
            for start, end in zip([0, *ends], ends, strict=False)
        ]

    def raise_to(self, weights: np.ndarray, numbers: np.ndarray, rows: np.ndarray) -> None:
        """Raise each entry of `weights` to the weight of the row's words in the record.

        Args:
            weights: (rows, records) float32, changed in place. Greater entries stay.
            numbers: Word numbers (uint32).
            rows: The row of each word. Several words may share a row.
        """
        at = np.searchsorted(self.terms, numbers)
        at[at == len(self.terms)] = 0
        which = np.flatnonzero(self.terms[at] == numbers) if len(self.terms) else at[:0]
        starts, ends = self.starts[at[which]].tolist(), self.starts[at[which] + 1].tolist()
        for row, start, end in zip(rows[which].tolist(), starts, ends, strict=True):
            places = self.places[start:end]
            own = self.weights[start:end].astype(np.float32)
            weights[row, places] = np.maximum(weights[row, places], own)


_NONE = np.empty(0, np.uint32)
