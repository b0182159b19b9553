"""Search queries: a question's words, meaning, speakers and period."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import TYPE_CHECKING, Self

import numpy as np

from agent_memory.core.query_text import asks, asks_assistant
from agent_memory.core.text import sentences
from agent_memory.retrieval.dates import Period, period_of
from agent_memory.retrieval.features import ASSISTANT, SPEAKER, USER, term_of
from agent_memory.retrieval.languages import languages_of, persons
from agent_memory.retrieval.vectors import NO_STARTS, NO_TOKENS, Encoding
from agent_memory.retrieval.words import forms_of

if TYPE_CHECKING:
    from agent_memory.core.records import Record
    from agent_memory.models.embedders.base import Encoder
    from agent_memory.retrieval.index import SegmentIndex

_WRITTEN = re.compile(r"\S+")
_NUMBER = re.compile(r"\d")
# English only; a lone lower-case "i" is ambiguous and does not count
_FIRST_PERSON = re.compile(
    r"\b(?:I|[Mm]e|[Mm]y|[Mm]ine|[Mm]yself|[Ww]e|us|[Oo]urs?|i'(?:m|ve|d|ll)"
    r"|(?:do|did|am|was|have|had|can|should|would|will) i)\b"
)
# phrases that contain "you", but are not about the assistant: "Do you know where I live?"
_HEARER = re.compile(
    r"\byou (?:\w+ )?(?:to )?(?:know|remember|recall|(?:remind|tell) me)\b|\b(?:tell|told|to) you\b"
    r"|\byour (?:memory|notes)\b|\b(?:weißt|erinnerst) du\b|\btu te souviens\b|\bte acuerdas\b",
    re.IGNORECASE,
)
# phrases that contain "I" or "me", but are not about the user
_ANYBODY = re.compile(
    r"\bhow (?:do|can|could|should|would) I\b"
    r"|(?:^|[.!?,] ?)(?:please )?(?:give|tell|show|write|let) me\b",
    re.IGNORECASE,
)
_SECOND_PERSON = re.compile(r"\byou(?:r|rs)?\b", re.IGNORECASE)
_NO_VECTOR = np.empty(0, np.float32)


@dataclass(frozen=True, slots=True)
class Pending:
    """Records of messages that a block has not absorbed yet. Searches include them."""

    index: SegmentIndex  # the features of the pending records
    records: dict[str, Record]  # all pending records, by id
    query: Query  # the question with the usual word numbers; an encrypted store uses other numbers


@dataclass(frozen=True, slots=True)
class Query:
    """A question prepared for search."""

    # (dimension,) of unit length; empty to search by words alone
    meaning: np.ndarray = field(default_factory=lambda: _NO_VECTOR)
    # The question's distinct words. Each is a tuple of the numbers of its forms.
    words: tuple[tuple[int, ...], ...] = ()
    # (pieces, TOKEN) int8, the question's word pieces; see `Encoding`
    tokens: np.ndarray = field(default_factory=lambda: NO_TOKENS)
    # (pieces,) for each piece, the index of its word in `words`
    owners: np.ndarray = field(default_factory=lambda: NO_STARTS)
    speakers: tuple[int, ...] = ()  # term numbers of the speakers that the question may be about
    baseline: float = 0.0  # see `CachedEmbedder.baseline`
    small_talk: float = 0.0  # the probability that the message is small talk
    general: float = 0.0  # log-odds that the message is about the world, not about its user
    asks_assistant: bool = False  # whether the question asks what the assistant said before
    period: Period | None = None  # the days that the question is about; None for any
    alone: bool = False  # whether to compare records without their neighbours
    # number of best records whose next two records in the session are returned as well
    with_next: int = 0
    pending: Pending | None = None  # records to search in addition to the stored records

    @classmethod
    def of_question(
        cls, question: str, encoder: Encoder, today: date | None = None, *, is_message: bool = False
    ) -> Self:
        """Encode a question and build its query. Without `today`, its dates are ignored.

        With `is_message`, the question may be small talk or no question about the user.

        Raises:
            ModelError: The encoder's model cannot be reached or refuses.
        """
        encoding = encoder.encode_query(question)
        query = cls.of(question, encoding, encoder.baseline)
        if is_message:
            small_talk, general = encoder.intent(question, encoding.vector)
            query = replace(query, small_talk=small_talk, general=general)
        return query if today is None else replace(query, period=period_of(question, today))

    @classmethod
    def of(cls, question: str, encoding: Encoding, baseline: float = 0.0) -> Self:
        """Build the query of an encoded question. For `baseline` see `CachedEmbedder.baseline`."""
        languages = languages_of(question)
        words: dict[tuple[int, ...], int] = {}
        owners = np.full(len(encoding.starts), -1, np.int32)
        ends = np.searchsorted(encoding.starts, [m.end() for m in _WRITTEN.finditer(question)])
        first = 0
        for written, end in zip(_WRITTEN.findall(question), ends.tolist(), strict=True):
            terms = [
                tuple(dict.fromkeys(map(term_of, (*form.stems, form.plain))))
                for form in forms_of(written, languages)
            ]
            places = [words.setdefault(numbers, len(words)) for numbers in terms]
            # a number must match exactly, because similar word pieces may be another number
            count = 0 if _NUMBER.search(written) else end - first
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
            asks_assistant(question),
        )

    def over_the_same(self, query: Query) -> Query:
        """Return `query` with the pending records of this object."""
        own = self.pending
        return query if own is None else query.with_pending(own.index, own.records)

    def with_pending(self, index: SegmentIndex, records: dict[str, Record]) -> Query:
        """Return the query with pending records, which a search then includes."""
        alone = replace(self, pending=None)
        return replace(alone, pending=Pending(index, records, alone))

    def within(self, period: Period) -> Query:
        """Return the query limited to a period."""
        return self.over_the_same(replace(self, period=period))

    def like(self, direction: np.ndarray) -> Query:
        """Return a query for the records nearest to a direction, with the same pending records."""
        unit = direction / (float(np.linalg.norm(direction)) or 1.0)
        return self.over_the_same(Query(unit.astype(np.float32), alone=True))

    @property
    def is_direction(self) -> bool:
        """Whether the query only asks for the vectors nearest to `meaning`."""
        return self.alone and not self.words and not len(self.tokens) and self.period is None

    def by_words(self) -> Query:
        """Return the query without its meaning, for records that have no vectors."""
        return replace(self, meaning=_NO_VECTOR, tokens=NO_TOKENS, owners=NO_STARTS)

    def renumbered(self, numbers: Sequence[Sequence[int]], speakers: Sequence[int]) -> Query:
        """Return the query with a store's own numbers for the words and speakers."""
        return replace(self, words=tuple(map(tuple, numbers)), speakers=tuple(speakers))


def _meant(question: str) -> Iterator[int]:
    """Yield the numbers of the speakers that a question may be about.

    These are all speakers that the question names, and the assistant if the question asks what the
    assistant said. The user is included if the text, or a question in it, is in the first person
    and does not say "you", except as in "Do you know".
    """
    for word in dict.fromkeys(re.findall(r"\w+", question.casefold())):
        yield term_of(f"{SPEAKER}{word}")
    if asks_assistant(question):
        yield term_of(ASSISTANT)
    if _is_about_user(question) or any(map(_is_about_user, filter(asks, sentences(question)))):
        yield term_of(USER)


def _is_about_user(text: str) -> bool:
    own = _ANYBODY.sub("", _HEARER.sub("", text))
    first, second = persons(own)
    if second or _SECOND_PERSON.search(own):
        return False
    return first or _FIRST_PERSON.search(own) is not None
