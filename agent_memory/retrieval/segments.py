"""Records that follow each other, as one value: what they are found by, ready to be searched."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple, Self

import numpy as np

from agent_memory.retrieval.compact import Vectors, rounded_rows
from agent_memory.retrieval.encoding import TOKEN
from agent_memory.retrieval.features import Features
from agent_memory.retrieval.names import Names
from agent_memory.retrieval.postings import Postings
from agent_memory.retrieval.terms import Terms
from agent_memory.retrieval.tokens import Tokens

MOST_ROWS = 2_048
"""Records of one segment: with more, a deletion would take long to rewrite the rest."""

MOST_BYTES = 2 * 2**20
"""The same, for long vectors."""

_A_NUMBER = 4
_A_RECORD = 400  # bytes, of words and a place


class Segment(NamedTuple):
    """Some records of one owner. A value.

    Attributes:
        names: Their ids, each once.
        meaning: As `Features.meaning`.
        tokens: As `Features.tokens`.
        words: Those of the records, by word.
        places: As `Features.places`.
    """

    names: Names
    meaning: Vectors
    tokens: Tokens
    words: Postings
    places: np.ndarray

    @classmethod
    def of(cls, ids: Sequence[str], features: Features, *, compact: bool = False) -> Self:
        """The segment of records.

        Args:
            ids: Theirs, each once.
            features: Theirs.
            compact: Whether to round vectors of records that have words too. Vectors without words
                stay exact.
        """
        words = Postings.of(features.words)
        worded = len(np.unique(words.places)) == len(ids)
        return cls(
            Names.of(ids),
            Vectors.of(features.meaning, compact and worded),
            features.tokens,
            words,
            features.places,
        )

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Several, one after the other."""
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
        """The number of records."""
        return len(self.names)

    @property
    def dimension(self) -> int:
        """Numbers in a vector of meaning."""
        return self.meaning.length

    @property
    def nbytes(self) -> int:
        """About how much memory it takes."""
        return sum(part.nbytes for part in self)

    def without(self, ids: Collection[str]) -> Self:
        """The segment without some records, of whatever there is of them."""
        keep = np.ones(self.records, np.bool_)
        keep[self.names.places(ids)] = False
        return self.only(keep)

    def only(self, keep: np.ndarray) -> Self:
        """Some of the records: for each, whether it is one of them."""
        return type(self)(
            self.names.only(keep),
            self.meaning.only(keep),
            self.tokens.at(np.flatnonzero(keep)),
            self.words.only(keep),
            self.places[keep],
        )

    def features(self) -> Features:
        """The features of the records."""
        words = self.words.texts(self.records)
        return Features(self.meaning.floats(), self.tokens, words, self.places)


def in_segments(
    ids: Sequence[str],
    features: Features,
    *,
    compact: bool = False,
    most_bytes: int | None = None,
) -> Iterator[Segment]:
    """Records, however many, in segments that are not too large."""
    most = min(MOST_BYTES, most_bytes or MOST_BYTES)
    pieces = len(features.tokens.rows) / max(1, len(features))
    size = _A_NUMBER * features.dimension + TOKEN * pieces + _A_RECORD
    each = min(MOST_ROWS, max(1, int(most // size)))
    for at in range(0, len(ids), each):
        yield Segment.of(ids[at : at + each], features.part(at, at + each), compact=compact)


def rounded(features: Features) -> Features:
    """Features as stores that keep them compact return them, whatever is stored with a record."""
    worded = np.array([bool(len(words.ids)) for words in features.words], np.bool_)
    return Features(
        rounded_rows(features.meaning, worded),
        features.tokens,
        [_in_order(terms) for terms in features.words],
        features.places,
    )


def _in_order(terms: Terms) -> Terms:
    order = np.argsort(terms.ids)
    return Terms(terms.ids[order], terms.weights[order])
