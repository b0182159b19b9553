"""Choose and order search hits so that they answer a question. Pure.

A search often ranks an earlier copy of the question highest, or a reply that repeats the user's
words. Both would stand above the statement that answers the question. A correction may rank low;
see `retrieval.corrections`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from agent_memory.core.query_text import asks, asks_assistant, asks_for_all
from agent_memory.core.text import identifiers, names, word_count
from agent_memory.retrieval.corrections import Newer, corrected, move_next_to, newest_of_a_form
from agent_memory.retrieval.score import PARTS
from agent_memory.retrieval.statements import (
    FULL,
    SPEAKER,
    TextHit,
    question_words,
    repeats,
    tells_nothing,
    words_in,
)

_REPEATED = 0.6  # a reply is an echo if the user said this share of its words before
_SAME_QUESTION = 0.6  # minimum cosine of two copies of a question
_FAINT = 0.4  # factor on the score of a user message that asks the same question
_SURE = 0.5
_SENTENCE = 3  # number of words; a shorter query is a keyword search
_LIKELY = 0.1
_MOST_REPLIES = 3  # number of the assistant's messages for a question about the assistant's words
_SAMPLES = 3  # number of statements for which similar statements are searched
_SIMILAR = 0.45


def answers(
    question: str,
    hits: Sequence[TextHit],
    least: float,
    newer: Newer,
    *,
    corrects: bool,
    in_context: bool,
) -> list[TextHit]:
    """Return the hits that answer a question, best first.

    Corrections, replies and similar statements may be less relevant than `least`. `corrects` says
    whether the question is about the current state, rather than a state in the past. In a context,
    a correction usually precedes the statement that it corrects, and in a search it follows.
    """
    results = [hit for hit in hits if hit.relevance >= least]
    are_keywords = not asks(question) and word_count(question) < _SENTENCE
    if in_context or not are_keywords:  # a keyword search returns questions with the words too
        results = informative_hits(question, results)
    if corrects:
        results = newest_of_a_form(results, question)
    sure = [hit for hit in results if hit.is_statement and hit.relevance >= _SURE]
    if asks_assistant(question):
        return _with_replies(results, hits)
    if asks_for_all(question):
        results = corrected(question, results, [], hits, newer, in_context=in_context)
        return _with_similar(results, sure[:_SAMPLES], newer) if in_context else results
    if sure and least and are_keywords:
        return [hit for hit in results if hit.words or not results[0].words]
    if not corrects:
        return sorted(results, key=lambda hit: hit.relevance < _SURE or not _is_of_the_days(hit))
    return corrected(question, results, sure, hits, newer, in_context=in_context)


def informative_hits(question: str, hits: Sequence[TextHit]) -> list[TextHit]:
    """Return the hits that say more than the question itself, best first.

    User messages without other words than the question are dropped. Those that ask the question
    again, and add no name or number, get a lower score and relevance, unless the question is about
    the assistant's words.
    """
    languages, query_words = question_words(question)
    results = [
        hit for hit in hits if not tells_nothing(query_words, languages, hit.text, hit.is_user)
    ]
    if asks_assistant(question):
        return results
    copies = {hit.record.id: hit.record for hit in hits if hit.is_user and _repeats(hit, question)}
    replies: set[tuple[str, int]] = set()
    if asks(question):
        replies = {(copy.session_id, copy.last + 1) for copy in copies.values()}
    if copies:
        results = [_fainter(hit) if hit.record.id in copies else hit for hit in results]
    results.sort(key=lambda hit: -hit.score)
    return _without_echoes(results, query_words, languages, replies)


def _is_of_the_days(hit: TextHit) -> bool:
    """Return whether a hit is of the days that the question is about."""
    return bool(hit.parts) and hit.parts[PARTS.index("dated")] == 1


def _repeats(hit: TextHit, question: str) -> bool:
    """Return whether a message asks the question again, without another name or number."""
    languages, query_words = question_words(question)
    is_same = hit.cosine >= _SAME_QUESTION and hit.asks
    if not (is_same or repeats(query_words, languages, hit.text)):
        return False
    folded = question.casefold()
    return all(part.casefold() in folded for part in (*identifiers(hit.text), *names(hit.text)))


def _fainter(hit: TextHit) -> TextHit:
    """Lower a hit's score and relevance, so that it neither precedes nor hides an answer."""
    return hit._replace(score=hit.score * _FAINT, relevance=hit.relevance * _FAINT)


def _without_echoes(
    hits: Sequence[TextHit],
    query_words: frozenset[str],
    languages: frozenset[str],
    replies: Collection[tuple[str, int]],
) -> list[TextHit]:
    """Drop assistant messages that repeat an earlier user message among the hits.

    A reply to an earlier copy of the question is also dropped if a relevant statement of the user
    precedes it. Such a reply derives from the statement, and may be outdated. A reply in the first
    person is not dropped for this reason, because a person may have written it. `replies` has the
    session and seq of each reply to an earlier copy.
    """
    user_turns = [(hit.place, words_in(hit.text, languages)) for hit in hits if hit.is_user]
    every = frozenset[str]().union(*(terms for _, terms in user_turns))
    places = [hit.place for hit in hits if hit.is_statement and hit.relevance >= _SURE]

    def is_echo(hit: TextHit) -> bool:
        is_reply = (hit.record.session_id, hit.record.first) in replies
        is_answered = is_reply and not SPEAKER.search(hit.text)
        if is_answered and any(at < hit.place for at in places):
            return True
        words = words_in(hit.text, languages)
        news = words - query_words
        if not news or len(words) > 2 * FULL:
            return False
        least = _REPEATED * len(news)
        if len(news & every) < least:  # the most common case
            return False
        return any(len(news & terms) >= least and at < hit.place for at, terms in user_turns)

    return [hit for hit in hits if hit.is_user or not is_echo(hit)]


def _with_replies(results: list[TextHit], hits: Sequence[TextHit]) -> list[TextHit]:
    """Add the assistant's replies to the user's statements, each before its statement.

    If anything is relevant, also add the assistant's best messages: an answer often says nothing
    that is close to the question.
    """
    at = {(hit.record.session_id, hit.record.first): hit for hit in reversed(hits)}
    for statement in [hit for hit in results if hit.is_user and hit.relevance >= _LIKELY]:
        reply = at.get((statement.record.session_id, statement.record.last + 1))
        if reply is not None and not reply.is_user:
            results = move_next_to(results, statement, reply, True)
    if not results:
        return results
    shown = {hit.record.id for hit in results}
    replies = [hit for hit in hits if not hit.is_user]
    for hit in replies[:_MOST_REPLIES]:
        if hit.record.id not in shown:
            results = move_next_to(results, results[-1], hit, False, corrects=False)
    return results


def _with_similar(results: list[TextHit], hits: Sequence[TextHit], newer: Newer) -> list[TextHit]:
    """Add statements that are similar to one of `hits`, each after this hit."""
    ids = {hit.record.id for hit in results}
    for hit in hits:
        for other, near in newer(hit):
            if near >= _SIMILAR and other.record.id not in ids and other.is_statement:
                ids.add(other.record.id)
                results = move_next_to(results, hit, other, False)
    return results
