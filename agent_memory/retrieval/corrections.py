"""Find the corrections of a statement, and order both. Pure.

"Which city do I live in?" is close to "I moved to Lisbon.", but not to "I moved on to Porto
today.". A newer statement therefore counts as a correction if it is close to both the question and
the older statement.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from agent_memory.core.query_text import is_small_talk
from agent_memory.core.text import names as names_in
from agent_memory.retrieval.score import PARTS
from agent_memory.retrieval.statements import (
    REFERS,
    TextHit,
    changes,
    contrasts,
    differs_in_value,
    first_word,
    has_form,
    is_about_another,
    kinds_of_values,
    leans,
    names_another,
    question_words,
    repeats_most,
    takes_back,
    words_in,
)

Newer = Callable[[TextHit], Sequence[tuple[TextHit, float]]]
"""Returns the hits nearest to both the question and a statement, nearest first. Each hit comes with
the sum of its two cosines. The hits may be older than the statement."""

_FIRST = 12  # number of hits that are compared with each other for contradictions
_CORRECTIONS = 2
_FIRST_STATEMENTS = 5  # number of statements for which short corrections are searched
_LEANS = 4  # a short correction may be this many seqs after its statement
# In a large memory, some newer statements are always near by chance. Half the nearness of the fifth
# nearest is therefore subtracted from the nearness of each.
_FIFTH, _BY_CHANCE = 4, 0.5
_NEAR = 0.45  # minimum nearness of a correction
_NEAR_BEHIND = 0.2  # the same for a statement that a context shows behind the older statement
_BEHIND = 5  # number of these statements
_NEARLY = 0.8  # the statement to correct must have this share of the highest `_alone`
_EVIDENCE = 0.1  # added to the sum for words of change, and for a value of the same kind
# Subtracted from the sum if both statements begin with the same word, which makes any two
# statements similar.
_SAME_START = 0.2

Since = Sequence[tuple[TextHit, float]]
"""Newer statements, nearest first, each with its nearness: the sum of two cosines, adjusted for the
texts."""


def corrected(
    question: str,
    results: list[TextHit],
    sure: Sequence[TextHit],
    hits: Sequence[TextHit],
    newer: Newer,
    *,
    in_context: bool,
) -> list[TextHit]:
    """Return `results` with corrections.

    Two kinds are added: short corrections that follow one of the first statements, such as "No, the
    6th!", and newer statements that correct the answer to the question. `sure` has the statements
    among `results` that are surely relevant, `hits` all hits of the search.
    """
    about = [name for name in names_in(question) if any(name in hit.record.text for hit in sure)]
    relevances = {hit.record.id: hit.relevance for hit in hits}
    corrections = _Corrections(question, hits, relevances, newer, about, in_context)
    results = corrections.with_leaning(results)
    if not sure:
        return results
    possible = [hit for hit in sure if any(name in hit.record.text for name in about)] or sure
    nearest = max(map(_alone, possible))
    least = min(nearest, _NEARLY * nearest)  # may be negative
    statement = next(hit for hit in possible if _alone(hit) >= least)
    if statement is not sure[0]:
        results = move_next_to(results, sure[0], statement, True)
    return corrections.applied(results, statement)


@dataclass(frozen=True, slots=True)
class _Corrections:
    """Finds corrections for a question. `about` has the names in the question that hits contain."""

    question: str
    hits: Sequence[TextHit]
    relevances: Mapping[str, float]
    newer: Newer
    about: Sequence[str]
    in_context: bool

    def applied(self, results: list[TextHit], statement: TextHit) -> list[TextHit]:
        """Return `results` with the corrections of `statement`, each next to its statement.

        A context also gets the nearest newer statements, behind `statement`: a model can see which
        of them correct it.
        """
        since = self._since(statement)
        for hit in reversed(self._nearer(since, _NEAR_BEHIND, _BEHIND) if self.in_context else []):
            results = move_next_to(results, statement, hit, False, corrects=False)
        unique: dict[str, tuple[TextHit, bool]] = {}
        leaning = [(hit, False) for hit in self._leaning(statement)]
        for hit, same_form in [*self._replacing(statement, since), *leaning]:
            unique.setdefault(hit.record.id, (hit, same_form))
        nearest = [*unique.values()][:_CORRECTIONS]
        anchor = statement
        for hit, same_form in sorted(nearest, key=lambda pair: pair[0].place):
            # two corrections of the same form correct each other rather than `statement`
            alone = not any(
                self._replaces(other, hit) or self._replaces(hit, other) for other, _ in nearest
            )
            if same_form or (self.in_context and (alone or changes(hit.text))):
                results = move_next_to(results, anchor, hit, True)
                anchor = hit
            else:
                results = move_next_to(results, statement, hit, False)
        return results

    def with_leaning(self, results: list[TextHit]) -> list[TextHit]:
        """Return `results` with the short corrections of the first statements."""
        before: set[str] = set()
        for statement in [hit for hit in results if hit.is_statement][:_FIRST_STATEMENTS]:
            before.add(statement.record.id)
            for hit in self._leaning(statement):
                if hit.record.id not in before:
                    before.add(hit.record.id)
                    is_sure = takes_back(hit.text)
                    results = move_next_to(results, statement, hit, self.in_context and is_sure)
        return results

    def _replacing(self, statement: TextHit, since: Since) -> list[tuple[TextHit, bool]]:
        """Return near newer statements, each with whether it has the form of `statement`.

        If some of them have this form, return only these.
        """

        def near(old: TextHit, since: Since) -> list[tuple[TextHit, bool]]:
            nearest = self._nearer(since, _NEAR, _CORRECTIONS)
            return [(hit, self._replaces(hit, old)) for hit in nearest]

        corrections = near(statement, since)
        for hit, same_form in corrections[-1:]:  # the correction may itself have been corrected
            if same_form or changes(hit.text):
                corrections += near(hit, self._since(hit))
        return [pair for pair in corrections if pair[1]] or corrections

    def _nearer(self, since: Since, least: float, count: int) -> list[TextHit]:
        near = [hit for hit, nearness in since if nearness >= least][:count]
        return [hit._replace(relevance=self.relevances.get(hit.record.id, 0.0)) for hit in near]

    def _replaces(self, hit: TextHit, statement: TextHit) -> bool:
        """Return whether `hit` is a newer statement of the same speaker in the same form."""
        languages, query_words = question_words(self.question)
        new, old = (words_in(item.text, languages) for item in (hit, statement))
        return has_form(new, old, query_words) and hit.follows(statement)

    def _since(self, statement: TextHit) -> Since:
        """Return newer statements, the nearest first."""
        nearest: list[tuple[TextHit, float]] = []
        old = statement.text
        kinds, start = kinds_of_values(old), first_word(old)
        about = [*self.about, *" ".join(names_in(old)).split()] if self.about else []
        for hit, near in self.newer(statement):
            text = hit.text
            if not hit.follows(statement) or is_small_talk(text):
                continue
            if is_about_another(text, about) and not REFERS.search(text):
                continue
            if names_another(text, old, self.question) and not contrasts(text):
                continue
            evidence = _EVIDENCE * (changes(text) + (not kinds.isdisjoint(kinds_of_values(text))))
            nearest.append((hit, near + evidence - _SAME_START * (first_word(text) == start)))
        nearest.sort(key=lambda pair: -pair[1])
        by_chance = sum(near for _, near in nearest[_FIFTH : _FIFTH + 1])
        return [(hit, near - _BY_CHANCE * by_chance) for hit, near in nearest]

    def _leaning(self, statement: TextHit) -> list[TextHit]:
        """Return the first short message that corrects the statement before it.

        An example is "No, the 6th!". Such a message takes something back, reports a change, or
        gives a number or weekday.
        """
        after = [
            hit
            for hit in self.hits
            if hit.record.session_id == statement.record.session_id
            and hit.record.first - statement.record.first <= _LEANS
            and hit.follows(statement)
            and leans(hit.text, statement.text, self.about, self.question)
        ]
        return sorted(after, key=lambda hit: hit.record.first)[:1]


def newest_of_a_form(results: list[TextHit], question: str) -> list[TextHit]:
    """Move each statement among the first hits before the older statement that it contradicts."""
    languages, query_words = question_words(question)
    statements = [hit for hit in results[:_FIRST] if hit.is_statement]
    words = {hit.record.id: words_in(hit.text, languages) for hit in statements}
    for hit in statements:
        own = hit.record.id
        for old in results:
            if old.record.id == own:
                break
            old_words = words.get(old.record.id)
            if old_words is None or not old_words & query_words <= words[own]:
                continue
            if not (repeats_most(words[own], old_words) or differs_in_value(hit.text, old.text)):
                continue
            if hit.follows(old):
                results = move_next_to(results, old, hit, True)
                break
    return results


def _alone(hit: TextHit) -> float:
    """Return how near a hit itself is to the question, without its neighbours.

    With neighbours, messages after an answer would score too high.
    """
    own = dict(zip(PARTS, hit.parts, strict=False))
    return own.get("meaning", 0.0) + own.get("words", 0.0)


def move_next_to(
    results: list[TextHit], statement: TextHit, hit: TextHit, before: bool, *, corrects: bool = True
) -> list[TextHit]:
    """Move `hit` directly before `statement` if `before`, otherwise directly behind it.

    If `hit` surely corrects or answers `statement`, it is at least as relevant.
    """
    others = [other for other in results if other.record.id != hit.record.id]
    at = next((at for at, other in enumerate(others) if other.record.id == statement.record.id), 0)
    relevance = max(hit.relevance, statement.relevance) if corrects else hit.relevance
    others.insert(at + (not before), hit._replace(score=others[at].score, relevance=relevance))
    return others
