"""Messages that are clear only together: short answers, and facts on something named before. Pure.

A search finds the message with a question's subject. What the user then says about the subject
("the second one", "She turns 8 in May.") is often not similar to the question.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from agent_memory.core.query_text import ends_with_question, is_small_talk
from agent_memory.core.text import sentences, word_count
from agent_memory.retrieval.answers import informative_hits
from agent_memory.retrieval.corrections import move_next_to
from agent_memory.retrieval.score import GAP, SHORT
from agent_memory.retrieval.statements import TextHit

_OFFERS = re.compile(r"\b(?:any|some)thing (?:else|more)\b|\bI (?:help|assist)\b", re.IGNORECASE)
_FIRST = 2  # number of the user's messages to which following messages are added
_SHARE = 0.6  # minimum share of the score of the message that they follow


def completed(
    question: str, results: list[TextHit], hits: Sequence[TextHit], *, in_context: bool
) -> list[TextHit]:
    """Return `results` with messages of `hits` that belong to them. For `in_context` see `answers`.

    A search does not get following messages, because they are usually among its results anyway.
    """
    results = _with_exchanges(results, hits)
    return _with_next(question, results, hits) if in_context else results


def _with_exchanges(results: list[TextHit], hits: Sequence[TextHit]) -> list[TextHit]:
    """Add the user's short answers ("The second one.") with their questions, behind a result.

    This result is the question, the answer, the message before the question, or the reply.
    """
    every = sorted(hits, key=lambda hit: (hit.record.session_id, hit.record.first))
    for at, (question, answer) in enumerate(pairwise(every)):
        if not (answer.is_statement and _answers(answer, question)):
            continue
        near = {hit.record.id for hit in every[max(0, at - 1) : at + 3] if _is_near(hit, question)}
        first = next((hit for hit in results if hit.record.id in near), None)
        if first is None:
            continue
        for hit in (answer, question):
            results = _behind(results, first, hit)
    return results


def _with_next(question: str, results: list[TextHit], hits: Sequence[TextHit]) -> list[TextHit]:
    """Add the replies to the user's first messages, and what the user says soon after them.

    In a group, other users reply too. Small talk is not added, and no reply that `informative_hits`
    leaves out.
    """
    firsts = [hit for hit in results if hit.is_user][:_FIRST]
    latest = sorted(hits, key=lambda hit: -hit.record.first)
    pairs = [
        (first, hit)
        for first in firsts
        for hit in latest
        if hit.record.session_id == first.record.session_id
        and 0 < hit.record.first - first.record.first <= GAP
        and _belongs(hit, first)
    ]
    shown = {hit.record.id for hit in results}
    new = [hit for _, hit in pairs if hit.record.id not in shown]
    if new:
        shown.update(hit.record.id for hit in informative_hits(question, [*results, *new]))
    for first, hit in pairs:
        if hit.record.id in shown:
            results = _behind(results, first, hit)
    return results


def _belongs(hit: TextHit, first: TextHit) -> bool:
    """Return whether a hit soon after a user's message is a reply, or a statement of the user.

    A reply is a message of another speaker.
    """
    if hit.score < _SHARE * first.score or is_small_talk(hit.text):
        return False
    return hit.speaker != first.speaker or hit.follows(first)


def _behind(results: list[TextHit], first: TextHit, hit: TextHit) -> list[TextHit]:
    """Move a hit directly behind another one, unless it is before it already."""
    ids = [other.record.id for other in results]
    if hit.record.id in ids[: ids.index(first.record.id) + 1]:
        return results
    return move_next_to(results, first, hit, False, corrects=False)


def _answers(answer: TextHit, question: TextHit) -> bool:
    """Return whether a statement is a short answer to the question of the hit before it."""
    if word_count(answer.text) > SHORT or not _is_near(answer, question):
        return False
    if answer.speaker == question.speaker:
        return False
    questions = filter(ends_with_question, sentences(question.text)[-2:])
    return not all(map(_OFFERS.search, questions))


def _is_near(hit: TextHit, other: TextHit) -> bool:
    same_session = hit.record.session_id == other.record.session_id
    return same_session and abs(hit.record.first - other.record.first) <= 2 * GAP
