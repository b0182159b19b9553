"""Segments, which store some records of one owner as one value, and compact lists of ids."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple, Self

import numpy as np

from agent_memory.retrieval.features import Features
from agent_memory.retrieval.postings import Postings, Terms
from agent_memory.retrieval.vectors import TOKEN, Tokens, Vectors, rounded_rows

_DIGITS = 32
_BYTES = 16


class Names:
    """An ordered list of ids. An id of this library (32 hexadecimal digits) takes 16 bytes.

    Args:
        packed: (n, 16) uint8, if all ids are of this library.
        texts: The ids if `packed` is None.
    """

    def __init__(self, packed: np.ndarray | None, texts: tuple[str, ...] = ()) -> None:
        self.packed = packed
        self.texts = texts

    @classmethod
    def of(cls, ids: Sequence[str]) -> Names:
        joined = "".join(ids)
        if ids and {*map(len, ids)} == {_DIGITS} and joined.isascii():
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

    def __getitem__(self, place: int) -> str:
        return self.texts[place] if self.packed is None else self.packed[place].tobytes().hex()

    @property
    def nbytes(self) -> int:
        return sum(map(len, self.texts)) + 60 * len(self.texts) + _BYTES * len(self)

    def all(self) -> list[str]:
        return [self[place] for place in range(len(self))]

    def places(self, ids: Collection[str]) -> list[int]:
        """Return the indexes of the ids that are present, ascending."""
        if self.packed is None:
            return [place for place, name in enumerate(self.texts) if name in ids]
        ours = [name for name in ids if len(name) == _DIGITS]
        wanted = Names.of(ours)
        # no id has 32 characters, or an id of 32 characters is not hexadecimal
        if wanted.packed is None:
            return [p for p in range(len(self)) if self[p] in ids] if ours else []
        # a fast filter by the first 16 bits of the ids
        present = np.zeros(2**16, np.bool_)
        present[_beginnings(wanted.packed)] = True
        likely = np.flatnonzero(present[_beginnings(self.packed)]).tolist()
        return [place for place in likely if self[place] in ids]

    def only(self, keep: np.ndarray) -> Names:
        if self.packed is not None:
            return Names(self.packed[keep])
        return Names(None, tuple(self.texts[place] for place in np.flatnonzero(keep).tolist()))


def _beginnings(packed: np.ndarray) -> np.ndarray:
    return np.asarray(packed[:, 0].astype(np.uint16) << 8 | packed[:, 1])


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

        Args:
            compact: Whether to round the vectors. They stay exact if a record has no words.
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


def rounded(features: Features) -> Features:
    """Return features as a store with compact segments returns them: rounded, terms in order."""
    worded = np.array([bool(len(words.ids)) for words in features.words], np.bool_)
    meaning = rounded_rows(features.meaning, worded)
    words = [_in_order(terms) for terms in features.words]
    return Features(meaning, features.tokens, words, features.places)


def _in_order(terms: Terms) -> Terms:
    order = np.argsort(terms.ids)
    return Terms(terms.ids[order], terms.weights[order])
