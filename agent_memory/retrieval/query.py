"""What a question looks for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self

import numpy as np

from agent_memory.retrieval.encoding import NO_STARTS, NO_TOKENS, Encoding
from agent_memory.retrieval.features import SPEAKER, USER
from agent_memory.retrieval.languages import languages_of, persons
from agent_memory.retrieval.terms import term_of
from agent_memory.retrieval.words import forms_of

if TYPE_CHECKING:
    from agent_memory.core.records import Record
    from agent_memory.models.embedders.base import Encoder
    from agent_memory.retrieval.index import SegmentIndex

_WRITTEN = re.compile(r"\S+")
# of English, where "i" is also a name for much else
_FIRST_PERSON = re.compile(
    r"\b(?:I|[Mm]e|[Mm]y|[Mm]ine|[Mm]yself|[Ww]e|us|[Oo]urs?|i'(?:m|ve|d|ll)"
    r"|(?:do|did|am|was|have|had|can|should|would|will) i)\b"
)
# what anybody asks or tells an assistant
_ANYBODY = re.compile(
    r"\bhow (?:do|can|could|should|would) I\b"
    r"|(?:^|[.!?,] ?)(?:please )?(?:give|tell|show|write|let) me\b",
    re.IGNORECASE,
)
_SECOND_PERSON = re.compile(r"\byou(?:r|rs)?\b", re.IGNORECASE)
_NO_VECTOR = np.empty(0, np.float32)


@dataclass(frozen=True, slots=True)
class Pending:
    """Records that are searched as if they were stored with the others.

    Attributes:
        index: Their features.
        records: All of them, by id.
        query: The question as they know it: stores that encrypt know its words by other numbers.
    """

    index: SegmentIndex
    records: dict[str, Record]
    query: Query


@dataclass(frozen=True, slots=True)
class Query:
    """What a question looks for.

    Attributes:
        meaning: (dimension,) of unit length; empty to go by words alone.
        words: The question's words, each once, with the numbers that each is known by.
        tokens: (pieces, TOKEN) int8 the question's word pieces; see `Encoding`.
        owners: (pieces,) which of the words each piece belongs to.
        speakers: The numbers of who is meant.
        baseline: As `Embedder.baseline`.
        pending: What is searched beside the stored records.
    """

    meaning: np.ndarray = field(default_factory=lambda: _NO_VECTOR)
    words: tuple[tuple[int, ...], ...] = ()
    tokens: np.ndarray = field(default_factory=lambda: NO_TOKENS)
    owners: np.ndarray = field(default_factory=lambda: NO_STARTS)
    speakers: tuple[int, ...] = ()
    baseline: float = 0.0
    pending: Pending | None = None

    @classmethod
    def asked(cls, question: str, encoder: Encoder) -> Self:
        """The query of a question that is still to be encoded.

        Raises:
            ModelError: The encoder's model cannot be reached or refuses.
        """
        return cls.of(question, encoder.encode_query(question), encoder.baseline)

    @classmethod
    def of(cls, question: str, encoding: Encoding, baseline: float = 0.0) -> Self:
        """The query of a question.

        Args:
            question: The question.
            encoding: The same as an encoder reads it.
            baseline: As `Embedder.baseline`.
        """
        languages = languages_of(question)
        words: dict[tuple[int, ...], int] = {}
        owners = np.full(len(encoding.starts), -1, np.int32)
        ends = np.searchsorted(encoding.starts, [m.end() for m in _WRITTEN.finditer(question)])
        first = 0
        for written, end in zip(_WRITTEN.findall(question), ends.tolist(), strict=True):
            known = [
                tuple(dict.fromkeys(map(term_of, (*form.stems, form.plain))))
                for form in forms_of(written, languages)
            ]
            places = [words.setdefault(numbers, len(words)) for numbers in known]
            count = end - first
            for nth in range(count if places else 0):
                owners[first + nth] = places[nth * len(places) // count]
            first = end
        counted = owners >= 0
        return cls(
            encoding.vector,
            tuple(words),
            encoding.tokens[counted],
            owners[counted],
            tuple(_meant(question)),
            baseline,
        )

    def with_pending(self, index: SegmentIndex, records: dict[str, Record]) -> Query:
        """The same, over records too that are not stored yet."""
        return replace(self, pending=Pending(index, records, self))

    def by_words(self) -> Query:
        """The same without its meaning, for records of which none is known."""
        return replace(self, meaning=_NO_VECTOR, tokens=NO_TOKENS, owners=NO_STARTS)

    def renumbered(self, numbers: Sequence[Sequence[int]], speakers: Sequence[int]) -> Query:
        """The same for a store that knows words and speakers by other numbers."""
        return replace(self, words=tuple(map(tuple, numbers)), speakers=tuple(speakers))


def _meant(question: str) -> Iterator[int]:
    """The numbers of speakers that a question may mean: those it names, and the user who asks of
    himself, unless the assistant is asked for its own words."""
    for word in dict.fromkeys(re.findall(r"\w+", question.casefold())):
        yield term_of(f"{SPEAKER}{word}")
    first, second = persons(question)
    if (first or _FIRST_PERSON.search(_ANYBODY.sub("", question))) and not (
        second or _SECOND_PERSON.search(question)
    ):
        yield term_of(USER)
