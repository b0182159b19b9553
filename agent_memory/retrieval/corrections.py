"""Find the corrections of a statement, and order both. Pure.

"Which city do I live in?" is close to "I moved to Lisbon.", but not to "I moved on to Porto
today.". A newer statement therefore counts as a correction if it is close to both the question and
the older statement.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from agent_memory.core.records import Hit
from agent_memory.core.text import names as names_in
from agent_memory.retrieval.informativeness import said_in
from agent_memory.retrieval.score import PARTS
from agent_memory.retrieval.statements import (
    REFERS,
    asked_words,
    changes,
    differs_in_value,
    first_word,
    follows,
    has_form,
    is_about_another,
    is_statement,
    kinds_of_values,
    leans,
    names_another,
    place_of,
    repeats_most,
    text_of,
)

Newer = Callable[[Hit], Sequence[tuple[Hit, float]]]
"""Returns the hits nearest to both the question and a statement, nearest first. Each comes with the
sum of its two cosines. The hits may be older than the statement."""

_FIRST = 12  # hits that are compared with each other for contradictions
_CORRECTIONS = 2
_LEANS = 4  # a short correction may be this many seqs after its statement
_NEAR = 0.66  # minimum sum of the two cosines, in a memory of many statements
_NEARLY = 0.8  # the statement to correct must have this share of the highest `_alone`
_FEW, _LEAST_MANY, _MANY = 0.2, 7, 50  # `_NEAR` is lower for few hits: chance matches are rarer
_EVIDENCE = 0.1  # added for words of change, and for a value of the same kind
_NEAR_BEHIND = 0.51  # `_NEAR` for a statement that a context shows behind the older one
_SAME_START = 0.2  # subtracted for the same first word, which makes any statements alike

Since = Sequence[tuple[Hit, float]]
"""Newer statements, each with its nearness: the sum of two cosines, adjusted for the texts."""


def corrected(
    question: str,
    told: list[Hit],
    sure: Sequence[Hit],
    hits: Sequence[Hit],
    newer: Newer,
    *,
    in_context: bool,
) -> list[Hit]:
    """Return the hits `told`, with the corrections of the statement that answers the question.

    Args:
        sure: The statements among `told` that are surely relevant, at least one.
        hits: All hits of the search.
    """
    about = [name for name in names_in(question) if any(name in one.record.text for one in sure)]
    possible = [one for one in sure if any(name in one.record.text for name in about)] or sure
    nearest = max(map(_alone, possible))
    least = min(nearest, _NEARLY * nearest)  # may be negative
    stated = next(hit for hit in possible if _alone(hit) >= least)
    if stated is not sure[0]:
        told = beside(told, sure[0], stated, True)
    return _Corrections(question, hits, newer, about, in_context).applied(told, stated)


@dataclass(frozen=True, slots=True)
class _Corrections:
    """Finds corrections for a question. `about` has the names in the question that hits contain."""

    question: str
    hits: Sequence[Hit]
    newer: Newer
    about: Sequence[str]
    in_context: bool

    def applied(self, told: list[Hit], stated: Hit) -> list[Hit]:
        """Return `told` with the corrections of a statement, each beside what it corrects."""
        least, since = _NEAR - _few(len(self.hits)), self._since(stated)
        found = self._replacing(told, stated, since, least)
        found += [(hit, False) for hit in self._leaning(stated)]
        if self.in_context and not found:
            for hit, _ in self._nearer(stated, since, min(_NEAR_BEHIND, least)):
                told = beside(told, stated, hit, False)
            return told
        unique = {hit.record.id: (hit, first) for hit, first in reversed(found)}
        newest = sorted(unique.values(), key=lambda one: place_of(one[0].record))[-_CORRECTIONS:]
        before = stated
        for hit, first in newest:
            # two corrections of the same form correct each other rather than `stated`
            alone = not any(
                self._replaces(one, hit) or self._replaces(hit, one) for one, _ in newest
            )
            if first or (self.in_context and (alone or changes(hit))):
                told = beside(told, before, hit, True)
                before = hit
            else:
                told = beside(told, stated, hit, False)
        return told

    def _replacing(
        self, told: Sequence[Hit], stated: Hit, since: Since, least: float
    ) -> list[tuple[Hit, bool]]:
        """Return near newer statements, each with whether it has the form of the older one.

        If some have, return only these.
        """
        if any(self._replaces(stated, one) for one in told):  # it corrects another one itself
            return []
        found = self._nearer(stated, since, least)
        for hit, first in found[-1:]:  # the correction may itself have been corrected
            if first or changes(hit):
                found += self._nearer(hit, self._since(hit), least)
        return [one for one in found if one[1]] or found

    def _nearer(self, old: Hit, since: Since, least: float) -> list[tuple[Hit, bool]]:
        known = {hit.record.id: hit.relevance for hit in self.hits}
        near = [hit for hit, nearness in since if nearness >= least][:_CORRECTIONS]
        near = [replace(hit, relevance=known.get(hit.record.id, 0.0)) for hit in near]
        return [(hit, self._replaces(hit, old)) for hit in near]

    def _replaces(self, hit: Hit, stated: Hit) -> bool:
        """Return whether `hit` is a newer statement of the same speaker in the form of `stated`."""
        languages, asked = asked_words(self.question)
        new, old = (said_in(text_of(one.record), languages) for one in (hit, stated))
        return has_form(new, old, asked) and follows(hit.record, stated.record)

    def _since(self, stated: Hit) -> Since:
        """Return the nearest newer statements."""
        found: list[tuple[Hit, float]] = []
        before = text_of(stated.record)
        kinds, start = kinds_of_values(before), first_word(before)
        for hit, near in self.newer(stated):
            text = text_of(hit.record)
            if not follows(hit.record, stated.record):
                continue
            if is_about_another(text, self.about) and not REFERS.search(text):
                continue
            if names_another(text, before, self.question):
                continue
            evidence = _EVIDENCE * (changes(hit) + (not kinds.isdisjoint(kinds_of_values(text))))
            found.append((hit, near + evidence - _SAME_START * (first_word(text) == start)))
        return found

    def _leaning(self, stated: Hit) -> list[Hit]:
        """Return the first short message that corrects the statement before it.

        An example is "No, the 6th!". Such a message takes something back, reports a change, or
        gives a number or weekday.
        """
        after = [
            hit
            for hit in self.hits
            if follows(hit.record, stated.record)
            and hit.record.session_id == stated.record.session_id
            and hit.record.first - stated.record.first <= _LEANS
            and leans(text_of(hit.record), text_of(stated.record), self.about, self.question)
        ]
        return sorted(after, key=lambda hit: hit.record.first)[:1]


def newest_of_a_form(told: list[Hit], question: str) -> list[Hit]:
    """Move each statement among the first hits before the older statement that it contradicts."""
    languages, asked = asked_words(question)
    first = [hit for hit in told[:_FIRST] if is_statement(hit)]
    words = {hit.record.id: said_in(text_of(hit.record), languages) for hit in first}
    for hit in first:
        own = hit.record.id
        for old in told:
            if old.record.id == own:
                break
            theirs = words.get(old.record.id)
            if theirs is None or not theirs & asked <= words[own]:
                continue
            if not (repeats_most(words[own], theirs) or differs_in_value(hit, old)):
                continue
            if follows(hit.record, old.record):
                told = beside(told, old, hit, True)
                break
    return told


def _few(count: int) -> float:
    """Return how much the similarity threshold is lowered if there are only `count` hits."""
    return _FEW * math.log(_MANY / min(_MANY, max(_LEAST_MANY, count)))


def _alone(hit: Hit) -> float:
    """Return how near a hit itself is to the question, without its neighbours.

    With neighbours, messages after an answer would score too high.
    """
    own = dict(zip(PARTS, hit.parts, strict=False))
    return own.get("meaning", 0.0) + own.get("words", 0.0)


def beside(told: list[Hit], stated: Hit, hit: Hit, first: bool) -> list[Hit]:
    """Move `hit` directly before `stated` if `first`, otherwise directly behind it."""
    others = [one for one in told if one.record.id != hit.record.id]
    at = next((at for at, one in enumerate(others) if one.record.id == stated.record.id), 0)
    relevance = max(hit.relevance, stated.relevance)
    others.insert(at + (not first), replace(hit, score=others[at].score, relevance=relevance))
    return others
