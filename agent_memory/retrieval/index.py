"""Segments, which store some records of one owner as one value, and exact search over them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple, Self

import numpy as np

from agent_memory.core.lazy import lazy_property
from agent_memory.core.records import Record
from agent_memory.retrieval.features import PLACE, Features, Postings
from agent_memory.retrieval.query import Query
from agent_memory.retrieval.score import (
    REACH,
    Candidates,
    Ranked,
    in_order,
    informativeness,
    nearest,
    ranked,
)
from agent_memory.retrieval.vectors import NO_STARTS, TOKEN, Encoding, Tokens, Vectors, ranges

_HEX_DIGITS = 32
_BYTES = 16


class Names:
    """An ordered list of ids.

    If all ids are of this library (32 hexadecimal digits), `packed` has them as (n, 16) uint8.
    """

    def __init__(self, packed: np.ndarray | None, texts: tuple[str, ...] = ()) -> None:
        self.packed = packed
        self.texts = texts

    @classmethod
    def of(cls, ids: Sequence[str]) -> Names:
        joined = "".join(ids)
        if ids and {*map(len, ids)} == {_HEX_DIGITS} and joined.isascii():
            try:
                packed = bytes.fromhex(joined)
            except ValueError:
                packed = b""
            if packed.hex() == joined:
                return cls(np.frombuffer(packed, np.uint8).reshape(-1, _BYTES))
        return cls(None, tuple(ids))

    @classmethod
    def joined(cls, parts: Sequence[Names]) -> Names:
        packed = [part.packed for part in parts if part.packed is not None]
        if len(packed) == len(parts):
            return cls(np.concatenate(packed))
        return cls(None, tuple(name for part in parts for name in part.all()))

    def __len__(self) -> int:
        return len(self.texts) if self.packed is None else len(self.packed)

    @lazy_property
    def _digits(self) -> str:
        return "" if self.packed is None else self.packed.tobytes().hex()

    def __getitem__(self, place: int) -> str:
        if self.packed is None:
            return self.texts[place]
        return self._digits[place * _HEX_DIGITS : (place + 1) * _HEX_DIGITS]

    @property
    def nbytes(self) -> int:
        packed = (_BYTES + _HEX_DIGITS) * len(self)
        return sum(map(len, self.texts)) + 60 * len(self.texts) + packed

    def all(self) -> list[str]:
        return [self[place] for place in range(len(self))]

    def places(self, ids: Collection[str]) -> list[int]:
        """Return the indexes of the ids that are present, ascending."""
        wanted = frozenset(ids)
        return [place for place, name in enumerate(self.all()) if name in wanted]

    def only(self, keep: np.ndarray) -> Names:
        if self.packed is not None:
            return Names(self.packed[keep])
        return Names(None, tuple(self.texts[place] for place in np.flatnonzero(keep).tolist()))


MOST_ROWS = 2_048
"""Maximum number of records in a segment. A deletion rewrites the segment's other records."""

MOST_BYTES = 2 * 2**20
"""Maximum size of a segment, in bytes. Records with long vectors reach it before `MOST_ROWS`."""

_A_NUMBER = 4
_A_RECORD = 400  # estimated bytes of a record's words and place


class Segment(NamedTuple):
    """Some records of one owner. Immutable. For `meaning`, `tokens` and `places` see `Features`."""

    names: Names  # the distinct ids of the records
    meaning: Vectors
    tokens: Tokens
    words: Postings  # the inverted index of the records' words
    places: np.ndarray

    @classmethod
    def of(cls, ids: Sequence[str], features: Features, *, compact: bool = False) -> Self:
        """Build a segment of records with distinct ids.

        With `compact`, the vectors are rounded, unless a record has no words.
        """
        words = Postings.of(features.words)
        worded = len(np.unique(words.places)) == len(ids)
        meaning = Vectors.of(features.meaning, compact and worded)
        return cls(Names.of(ids), meaning, features.tokens, words, features.places)

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        sizes = [len(part.names) for part in parts]
        return cls(
            Names.joined([part.names for part in parts]),
            Vectors.joined([part.meaning for part in parts]),
            Tokens.joined([part.tokens for part in parts]),
            Postings.joined([*zip([part.words for part in parts], sizes, strict=True)]),
            np.concatenate([part.places for part in parts]),
        )

    @property
    def records(self) -> int:
        return len(self.names)

    @property
    def dimension(self) -> int:
        return self.meaning.length

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self)

    def without(self, ids: Collection[str]) -> Self:
        """Return the segment without some records. Unknown ids are ignored."""
        keep = np.ones(self.records, np.bool_)
        keep[self.names.places(ids)] = False
        return self.only(keep)

    def only(self, keep: np.ndarray) -> Self:
        return type(self)(
            self.names.only(keep),
            self.meaning.only(keep),
            self.tokens.at(np.flatnonzero(keep)),
            self.words.only(keep),
            self.places[keep],
        )

    def features(self) -> Features:
        words = self.words.texts(self.records)
        return Features(self.meaning.floats(), self.tokens, words, self.places)


def in_segments(
    ids: Sequence[str], features: Features, *, compact: bool = False
) -> Iterator[Segment]:
    pieces = len(features.tokens.rows) / max(1, len(features))
    size = _A_NUMBER * features.dimension + TOKEN * pieces + _A_RECORD
    each = min(MOST_ROWS, max(1, int(MOST_BYTES // size)))
    for at in range(0, len(ids), each):
        yield Segment.of(ids[at : at + each], features.part(at, at + each), compact=compact)


ANY = -1
"""Dimension of an index without vectors. Queries of any dimension can search it."""

DEPTH = 20
"""Minimum number of candidates by meaning, and by words, that are scored in detail."""

_DIGITS = 6
_MOST_COPIED = 2**22
"""Maximum numbers in the vectors of an index whose searches read copies."""

_SEGMENT = 2**32  # greater than the number of each word
_MERGED = 8  # a segment that is 8 times larger than the next segment is not merged with it


class SegmentIndex:
    """An index over segments, which share no record. It is immutable, so a search sees one state.

    Attributes:
        records: A cache of found records. The caller fills it and limits its size.
    """

    def __init__(self, dimension: int, segments: Sequence[Segment] = ()) -> None:
        self.dimension = dimension
        self.segments = tuple(segments)
        self.records: dict[str, Record] = {}
        self._firsts = [0, *accumulate(segment.records for segment in segments)]

    def __len__(self) -> int:
        return self._firsts[-1]

    @property
    def nbytes(self) -> int:
        size = sum(segment.nbytes for segment in self.segments)
        return 2 * size if self._is_small else size  # the copies are about as large

    @property
    def _is_small(self) -> bool:
        """Whether searches read copies: the vectors as floats, and all words in one part."""
        return len(self) * max(1, self.dimension) <= _MOST_COPIED

    @lazy_property
    def _words(self) -> list[tuple[int, int, Postings]]:
        """The postings of all records in parts, with the first record and the number of segments.

        In a part of several segments, the number of the segment is added to each word's number.
        """
        parts = [segment.words for segment in self.segments]
        if not (parts and self._is_small):
            return [(first, 1, part) for first, part in zip(self._firsts, parts, strict=False)]
        sizes = [*accumulate((len(part.places) for part in parts), initial=0)]
        columns = [
            (
                np.add(part.terms, at * _SEGMENT, dtype=np.int64),
                np.add(part.starts[:-1], size, dtype=np.int64),
                np.add(part.places, first, dtype=np.uint32),
                part.weights,
            )
            for at, (part, size, first) in enumerate(zip(parts, sizes, self._firsts, strict=False))
        ]
        terms, starts, places, weights = map(np.concatenate, zip(*columns, strict=True))
        return [(0, len(parts), Postings(terms, np.append(starts, sizes[-1]), places, weights))]

    @lazy_property
    def _pieces(self) -> np.ndarray:
        """(records + 1,) the first word piece of each record, followed by the total number."""
        sizes = [np.diff(segment.tokens.starts) for segment in self.segments]
        return np.concatenate([[0], *sizes]).cumsum(dtype=np.int64)

    @lazy_property
    def filled(self) -> np.ndarray:
        """For each record, whether it has a vector."""
        some = [segment.meaning.scales > 0 for segment in self.segments]
        return np.concatenate([np.zeros(0, np.bool_), *some])

    @lazy_property
    def _places(self) -> np.ndarray:
        return np.concatenate([np.zeros(0, PLACE), *(segment.places for segment in self.segments)])

    @lazy_property
    def _ordered(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return three (n,) arrays for the order of all records by session, seq and passage.

        The first lists the numbers of the records in this order. The second has the position of
        each record. The third has the number of the session at each position. A record without
        neighbours has a session number of its own.
        """
        order = in_order(self._places)
        places = self._places[order]
        begins = np.ones(len(order), np.bool_)
        begins[1:] = (places["session"][1:] != places["session"][:-1]) | (places["seq"][:-1] == 0)
        at = np.empty_like(order)
        at[order] = np.arange(len(order))
        return order, at, np.cumsum(begins)

    def with_neighbours(self, chosen: np.ndarray, reach: int = REACH) -> np.ndarray:
        """Return the chosen records and their neighbours up to `reach`, in order."""
        order, at, sessions = self._ordered
        rows = at[chosen]
        near = (rows[:, None] + np.arange(-reach, reach + 1)).clip(0, max(0, len(order) - 1))
        included = np.zeros(len(order), np.bool_)
        included[near[sessions[near] == sessions[rows, None]]] = True
        records: np.ndarray = order[included]
        return records

    def extended(self, ids: Sequence[str], features: Features, *, compact: bool = False) -> Self:
        """Return an index with additional records. For `compact` see `Segment.of`."""
        segments = [*self.segments]
        for segment in in_segments(ids, features, compact=compact):
            segments.append(segment)
            while len(segments) > 1 and _are_merged(*segments[-2:]):
                segments[-2:] = [Segment.joined(segments[-2:])]
        return type(self)(self.dimension, segments)

    def name(self, place: int) -> str:
        segment, row = self._position(place)
        return segment.names[row]

    def encoding(self, place: int) -> Encoding:
        """Return the encoding of a record. The vector is zeros if the record has none."""
        segment, row = self._position(place)
        vector = segment.meaning.only(np.array([row])).floats()[0]
        return Encoding(vector, segment.tokens.of_record(row), NO_STARTS)

    def _position(self, place: int) -> tuple[Segment, int]:
        at = bisect_right(self._firsts, place) - 1
        return self.segments[at], place - self._firsts[at]

    def search(self, query: Query, limit: int) -> Ranked:
        """Return the best records of this index and of the query's pending index, best first."""
        pairs: list[tuple[SegmentIndex, Query]] = [(self, query)]
        if query.pending is not None:
            pairs.append((query.pending.index, query.pending.query))
        depth = max(DEPTH, limit)
        if query.is_direction:
            near = [(index, *index._nearest_to(own.meaning, depth)) for index, own in pairs]
            return nearest(near, limit)
        return ranked([index.candidates(own, depth) for index, own in pairs], query, limit)

    def _nearest_to(self, meaning: np.ndarray, depth: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the numbers and cosines of the records nearest to a direction, unordered."""
        cosines = self._cosines(meaning)
        numbers = _best(np.where(self.filled, cosines, -np.inf), depth, above=-np.inf)
        return numbers, cosines[numbers]

    def candidates(self, query: Query, depth: int) -> Candidates:
        """Return the nearest records by meaning, by words and in the period, with their neighbours.

        `depth` records of each of these three kinds are returned. Ties go to the first record.
        """
        every = self._weights([*query.words, query.speakers])
        meant, weights = every[-1] > 0, every[:-1]
        holding = np.count_nonzero(weights, axis=1)
        cosines = self._cosines(query.meaning)
        words = informativeness(len(self), holding) @ weights
        first = _best(words, depth, above=0.0)
        if len(query.meaning):
            filled = np.where(self.filled, cosines, -np.inf)
            first = np.concatenate([first, _best(filled, depth, above=-np.inf)])
        if query.period is not None:
            days, period = self._places["day"], query.period
            then = (days >= period.first.toordinal()) & (days <= period.last.toordinal())
            then = np.where(then, cosines + words, -np.inf)
            first = np.concatenate([first, _best(then, depth, above=-np.inf)])
        places = self.with_neighbours(first, 0 if query.alone else REACH)
        return Candidates(
            indexes=(self,),
            total=len(self),
            holding=holding,
            sources=np.zeros(len(places), np.intp),
            numbers=places,
            places=self._places[places],
            cosines=cosines[places],
            filled=self.filled[places] if len(query.meaning) else np.zeros(len(places), np.bool_),
            best=self._best_pieces(places, query.tokens),
            weights=weights[:, places].T,
            meant=meant[places],
        )

    def _weights(self, words: Sequence[Sequence[int]]) -> np.ndarray:
        """Return for each word and record the highest weight of the word's forms, (words, n)."""
        weights = np.zeros((len(words), len(self)), np.float32)
        terms = np.array([term for word in words for term in word], np.int64)
        owners = np.repeat(np.arange(len(words)) * len(self), [len(word) for word in words])
        for first, segments, part in self._words if len(terms) else ():
            numbers = (np.arange(segments)[:, None] * _SEGMENT + terms).reshape(-1)
            numbers = numbers.astype(part.terms.dtype)
            at = np.searchsorted(part.terms, numbers)
            at[at == len(part.terms)] = 0  # a number after the last word
            which = np.flatnonzero(part.terms[at] == numbers) if len(part.terms) else at[:0]
            rows, begins = ranges(part.starts, at[which])
            places = np.repeat(owners[which % len(terms)] + first, np.diff(begins))
            own = part.weights[rows].astype(np.float32)
            np.maximum.at(weights.reshape(-1), places + part.places[rows], own)
        return weights

    def _cosines(self, meaning: np.ndarray) -> np.ndarray:
        if not len(meaning):
            return np.zeros(len(self), np.float32)
        vector = np.ascontiguousarray(meaning, np.float32)
        # BLAS reads past the array, so it may set floating-point flags for finite numbers
        with np.errstate(invalid="ignore", over="ignore"):
            copy = self._is_small
            parts = [segment.meaning.products(vector, copy=copy) for segment in self.segments]
        cosines = np.concatenate([np.zeros(0, np.float32), *parts])
        # the last bits of a sum depend on the row's place; rounding gives equal rows equal cosines
        return np.round(cosines, _DIGITS, out=cosines)

    def _best_pieces(self, places: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        best = np.empty((len(places), len(tokens)), np.float32)
        if not len(tokens):
            return best
        order = np.argsort(places)
        rows, starts = ranges(self._pieces, places[order])
        pieces = np.empty((len(rows), TOKEN), np.int8)
        firsts = self._pieces[self._firsts]
        ends = np.searchsorted(rows, firsts).tolist()
        for segment, first, at, end in zip(self.segments, firsts, ends, ends[1:], strict=False):
            some = rows[at:end] - first
            segment.tokens.rows.take(some, axis=0, out=pieces[at:end], mode="clip")
        best[order] = Tokens(pieces, starts).best(tokens)
        return best


def _are_merged(left: Segment, right: Segment) -> bool:
    """Return whether to merge two neighbouring segments. A much larger segment is not copied."""
    return left.records < _MERGED * right.records and left.records + right.records <= MOST_ROWS


def _best(scores: np.ndarray, depth: int, above: float) -> np.ndarray:
    """Return the indexes of the best scores above a limit, unordered. Ties go to the first."""
    places = np.flatnonzero(scores > above)
    if depth < len(places):
        values = scores[places]
        bar = np.partition(values, len(values) - depth)[len(values) - depth]
        sure = places[values > bar]
        places = np.concatenate([sure, places[values == bar][: depth - len(sure)]])
    return places


class TextIndex:
    """An index over a fixed list of texts. Without an embedder, the encodings have empty vectors.

    Attributes:
        encoded: Whether all non-blank texts have vectors.
    """

    def __init__(self, texts: Sequence[str], encodings: Sequence[Encoding]) -> None:
        self.texts = texts
        features = Features.of_statements(texts, encodings)
        rows = np.asarray(features.meaning.any(axis=1))
        self.encoded = all(row or not text.strip() for row, text in zip(rows, texts, strict=True))
        ids = [str(place) for place in range(len(texts))]
        self._index = SegmentIndex(features.dimension).extended(ids, features)

    def __len__(self) -> int:
        return len(self.texts)

    def relevance(self, query: Query) -> np.ndarray:
        """Return for each text the probability that it is relevant to a question."""
        if len(query.meaning) != self._index.dimension:  # the query or the index has no vectors
            query = query.by_words()
        ranked = self._index.search(query, len(self.texts))
        relevance = np.zeros(len(self.texts))
        relevance[[int(name) for name in ranked.names]] = ranked.relevance
        return relevance
