"""Records that follow each other, as one value: what they are found by, ready to be searched."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple, Self

import numpy as np

from agent_memory.retrieval.compact import Vectors, rounded_rows
from agent_memory.retrieval.features import Features
from agent_memory.retrieval.names import Names
from agent_memory.retrieval.postings import Postings
from agent_memory.retrieval.terms import Terms

MOST_ROWS = 2_048
"""Of one segment: of more, a deletion would take long to write anew what it leaves."""

MOST_BYTES = 2 * 2**20
"""The same, of long vectors."""

_A_NUMBER = 8  # bytes, in both of a record's vectors
_A_RECORD = 400  # bytes, of words


class Segment(NamedTuple):
    """Some records of one owner. A value.

    Attributes:
        names: Their ids, each once.
        meaning: As `Features.meaning`.
        meaning_around: As `Features.meaning_around`.
        words: Those of the records, by word.
        words_around: The same of each within its surroundings.
    """

    names: Names
    meaning: Vectors
    meaning_around: Vectors
    words: Postings
    words_around: Postings

    @classmethod
    def of(cls, ids: Sequence[str], features: Features, *, compact: bool = False) -> Self:
        """That of records.

        Args:
            ids: Theirs, each once.
            features: Theirs.
            compact: Whether to round vectors of records that have words too. Where vectors are all
                there is they are kept as they are.
        """
        words, around = Postings.of(features.words), Postings.of(features.words_around)
        if compact:
            worded = np.zeros(len(ids), np.bool_)
            worded[words.places] = worded[around.places] = True
            compact = bool(worded.all())
        return cls(
            Names.of(ids),
            Vectors.of(features.meaning, compact),
            Vectors.of(features.meaning_around, compact),
            words,
            around,
        )

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Several, one after the other."""
        sizes = [len(part.names) for part in parts]
        return cls(
            Names.joined([part.names for part in parts]),
            Vectors.joined([part.meaning for part in parts]),
            Vectors.joined([part.meaning_around for part in parts]),
            Postings.joined([*zip([part.words for part in parts], sizes, strict=True)]),
            Postings.joined([*zip([part.words_around for part in parts], sizes, strict=True)]),
        )

    @property
    def records(self) -> int:
        """How many records it has."""
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
        """What is left where these records are taken out, of whatever there is of them."""
        keep = np.ones(self.records, np.bool_)
        keep[self.names.places(ids)] = False
        return self.only(keep)

    def only(self, keep: np.ndarray) -> Self:
        """Some of the records: for each, whether it is one of them."""
        return type(self)(
            self.names.only(keep),
            self.meaning.only(keep),
            self.meaning_around.only(keep),
            self.words.only(keep),
            self.words_around.only(keep),
        )

    def features(self) -> Features:
        """What the records are found by."""
        return Features(
            self.meaning.floats(),
            self.meaning_around.floats(),
            self.words.texts(self.records),
            self.words_around.texts(self.records),
        )


def in_segments(
    ids: Sequence[str],
    features: Features,
    *,
    compact: bool = False,
    most_bytes: int | None = None,
) -> Iterator[Segment]:
    """Records, however many, in segments that are not too large."""
    most = min(MOST_BYTES, most_bytes or MOST_BYTES)
    each = min(MOST_ROWS, max(1, most // (_A_NUMBER * features.dimension + _A_RECORD)))
    for at in range(0, len(ids), each):
        yield Segment.of(ids[at : at + each], features.part(at, at + each), compact=compact)


def rounded(features: Features) -> Features:
    """Features as they come back from stores that keep them compact: the same whether they come
    from one or not, whatever is beside a record, and whatever the order of its words."""
    worded = np.array(
        [
            bool(len(own.ids) or len(other.ids))
            for own, other in zip(features.words, features.words_around, strict=True)
        ],
        np.bool_,
    )
    return Features(
        rounded_rows(features.meaning, worded),
        rounded_rows(features.meaning_around, worded),
        [_in_order(terms) for terms in features.words],
        [_in_order(terms) for terms in features.words_around],
    )


def _in_order(terms: Terms) -> Terms:
    order = np.argsort(terms.ids)
    return Terms(terms.ids[order], terms.weights[order])
