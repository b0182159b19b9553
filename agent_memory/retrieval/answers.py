"""Choose and order search hits so that they answer a question. Pure.

A search often ranks an earlier copy of the question highest, or a reply that repeats the user's
words. Both would stand above the statement that answers the question. A correction may rank low:
"Which city do I live in?" is close to "I moved to Lisbon.", but not to "I moved on to Porto
today.". A newer statement therefore counts as a correction if it is close to both the question and
the older statement.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from itertools import takewhile
from operator import eq

from agent_memory.core.query_text import asks, asks_assistant, asks_for_all
from agent_memory.core.records import Hit, Record
from agent_memory.core.text import names as names_in
from agent_memory.retrieval.dates import MONTHS, NUMBERS, WEEKDAYS
from agent_memory.retrieval.informativeness import FULL, asking, repeats, said_in, tells_nothing
from agent_memory.retrieval.languages import languages_of
from agent_memory.retrieval.score import PARTS

Newer = Callable[[Hit], Sequence[tuple[Hit, float]]]
"""Returns the hits nearest to both the question and a statement, nearest first. Each comes with the
sum of its two cosines. The hits may be older than the statement."""

_REPEATED = 0.6  # a reply is an echo if the user said this share of its words before
_SAME_QUESTION = 0.6  # minimum cosine of two copies of a question
_FAINT = 0.4  # factor on the score of a user message that asks the same question
_ALL = 100  # the value of `asking` for a text that consists of questions
_SURE = 0.5
_SENTENCE = 3  # words; a shorter query is a keyword search
_MOST_KNOWN = 100
_MOST_TEXTS = 4_000
_FIRST = 12  # hits that are compared with each other for contradictions
_LIKELY = 0.1
_CORRECTIONS = 2
_SAMPLES = 3  # statements for which similar ones are looked up
_SIMILAR = 0.45
_LEANS = 4  # a short correction may be this many seqs after its statement
_SAME_FORM = 0.6  # minimum share of a statement's words that a contradiction repeats
_SAME_WORDS = 3  # minimum number of equal words in two statements that differ only in a value
_NEAR = 0.66  # minimum sum of the two cosines, in a memory of many statements
_NEARLY = 0.8  # the statement to correct must have this share of the highest `_alone`
_FEW, _LEAST_MANY, _MANY = 0.2, 7, 50  # `_NEAR` is lower for few hits: chance matches are rarer
_EVIDENCE = 0.1  # added for words of change, and for a value of the same kind
_NEAR_BEHIND = 0.51  # `_NEAR` for a statement that a context shows behind the older one
_SAME_START = 0.2  # subtracted for the same first word, which makes any statements alike

_CHANGES = re.compile(
    r"\b(?:now|no longer|any ?more|instead|new|from (?:now|today)|these days|as of|rather|after all"
    r"|turns out|back to|used to|since|recently|lately|finally|just|already|today|actually|meant"
    r"|switch\w*|chang\w*|cancel\w*|mov(?:ed?|ing)|dropped|drop|retired|quit|g(?:a|i)ve(?:n)? up"
    r"|replac\w*|start(?:s|ed|ing)?|joined|sold|bought|got|began|became|postpon\w*|resched\w*|pushed"
    r"|rebook\w*"
    r"|updated?|swapp?\w*|assigned|put me|ended|over|finished|left|lost|split|broke up|married"
    r"|promoted|transferred|upgraded|exchanged|traded|hired|signed|extended|shifted|delayed|stopped"
    r"|migrated|renamed|relocated|settled|decided|went with|raised|lowered|cut|doubled|took over"
    r"|jetzt|nicht mehr|stattdessen|statt|gewechselt|umgezogen|ab heute|neue[rsnm]?|seit"
    r"|ahora|ya no|en vez|cambi\w+|nuev[oa]s?|maintenant|désormais|plus de|nouve\w+|adesso|ora"
    r"|non più|nuov[oa]|agora|mais)\b",
    re.IGNORECASE,
)
_VALUES = (*NUMBERS, "half", "quarter", *WEEKDAYS)
_VALUE = re.compile(rf"\d|\b(?:{'|'.join(_VALUES)})\b", re.IGNORECASE)
_KIND = re.compile(
    rf"(?P<day>\b(?:{'|'.join(WEEKDAYS)})s?\b)|(?P<date>\b(?:{'|'.join(MONTHS)})\b"
    r"|\b\d{1,2}(?:st|nd|rd|th)\b|\b\d{4}-\d\d\b)|(?P<time>\b\d{1,2}[:.]\d\d\b|\b\d{1,2} ?[ap]m\b)"
    r"|(?P<money>[$€£]\s?\d|\b\d+ ?(?:[$€£]|euros?|dollars?|pounds|bucks|k\b))",
    re.IGNORECASE,
)
_WORD = re.compile(r"\w+")
_COUNTED = re.compile(r"^\W*\d+[.):]\s")  # the number before an item of a list
_SPEAKER = re.compile(r"\b(?:I|[Mm]y|[Mm]e|[Mm]ine|[Mm]yself)\b")
_CALENDAR = frozenset([*MONTHS, *WEEKDAYS])
_REFERS = re.compile(
    r"\b(?:he|she|they|it|his|hers?|their|er|sie|il|elle|lui|lei)\b", re.IGNORECASE
)
_TAKES_BACK = re.compile(
    r"^\W*(?:no|nope|nah|not|wait|oops|sorry|actually|correction|scratch|make (?:that|it)|i meant"
    r"|i misread|rather|better|hmm|nein|doch|falsch|moment|perd[oó]n|non|en fait|anzi)\b"
    r"|\b(?:i meant|make (?:that|it)|scratch that|instead|after all|i misread|changed to"
    r"|change of plans?)\b",
    re.IGNORECASE,
)
_OF_ITS_OWN = re.compile(r"^\W*(?:my|our|the|an?|(?-i:[A-Z]\w+'s))\b", re.IGNORECASE)
"""The beginning of a sentence with a subject of its own, such as "My passport expires in 2031."."""
_POINTS_BACK = re.compile(r"\b(?:it|that|this|they|them|those|he|she|one)\b", re.IGNORECASE)


def answers(
    question: str,
    hits: Sequence[Hit],
    least: float,
    newer: Newer,
    *,
    corrects: bool,
    in_context: bool,
) -> list[Hit]:
    """Return the hits that answer a question, best first.

    Args:
        hits: Best first. Irrelevant hits may be included.
        least: The minimum relevance of results. Corrections, replies and similar statements that
            are added may have less.
        corrects: Whether the question is about the current state, rather than a state in the past.
        in_context: Whether the hits are for a context. A correction then usually precedes the
            statement that it corrects. In a search it usually follows.
    """
    told = telling(question, [hit for hit in hits if hit.relevance >= least])
    if corrects:
        told = _newest_of_a_form(told, question)
    sure = [hit for hit in told if _states(hit) and hit.relevance >= _SURE]
    if asks_assistant(question):
        return _with_replies(told, hits)
    if asks_for_all(question):
        return _with_similar(told, sure[:_SAMPLES], newer)
    if sure and least and not asks(question) and len(question.split()) < _SENTENCE:
        return [hit for hit in told if hit.words or not told[0].words]
    if not sure or not corrects:
        return told
    about = [name for name in names_in(question) if any(name in one.record.text for one in sure)]
    possible = [hit for hit in sure if _is_about(hit, about)] or sure
    nearest = max(map(_alone, possible))
    least_alone = min(nearest, _NEARLY * nearest)  # may be negative
    stated = next(hit for hit in possible if _alone(hit) >= least_alone)
    if stated is not sure[0]:
        told = _beside(told, sure[0], stated, True)
    known = {hit.record.id: hit.relevance for hit in hits}
    least_near = _NEAR - _few(len(hits))
    since = partial(_newer, newer=newer, about=about, question=question)

    def nearer(
        old: Hit, found: Sequence[tuple[Hit, float]], least: float
    ) -> list[tuple[Hit, bool]]:
        near = [hit for hit, nearness in found if nearness >= least][:_CORRECTIONS]
        near = [replace(hit, relevance=known.get(hit.record.id, 0.0)) for hit in near]
        return [(hit, _replaces(hit, old, question)) for hit in near]

    behind = since(stated)
    found = []
    if not any(_replaces(stated, one, question) for one in told):
        found = nearer(stated, behind, least_near)
    for hit, first in found[-1:]:  # the correction may itself have been corrected
        if first or _changes(hit):
            found += nearer(hit, since(hit), least_near)
    if any(first for _, first in found):
        found = [one for one in found if one[1]]
    found += [(hit, False) for hit in _leaning(stated, hits, about, question)]
    if in_context and not found:
        for hit, _ in nearer(stated, behind, min(_NEAR_BEHIND, least_near)):
            told = _beside(told, stated, hit, False)
        return told
    unique = {hit.record.id: (hit, first) for hit, first in reversed(found)}
    newest = sorted(unique.values(), key=lambda one: _place(one[0].record))[-_CORRECTIONS:]
    before = stated
    for hit, first in newest:
        # two corrections of the same form correct each other rather than `stated`
        alone = not any(
            _replaces(one, hit, question) or _replaces(hit, one, question) for one, _ in newest
        )
        if first or (in_context and (alone or _changes(hit))):
            told = _beside(told, before, hit, True)
            before = hit
        else:
            told = _beside(told, stated, hit, False)
    return told


def telling(question: str, hits: Sequence[Hit]) -> list[Hit]:
    """Return the hits that say more than the question itself, best first.

    User messages that only ask the question again are dropped. Those that say something else, but
    no answer, get a lower score and relevance, unless the question is about the assistant's words.
    """
    languages, asked = _asked(question)
    told = [
        hit
        for hit in hits
        if not tells_nothing(asked, languages, *_turn(hit))
        and not (hit.cosine >= _SAME_QUESTION and asking(_turn(hit)[0]) == _ALL and _turn(hit)[1])
    ]
    if asks_assistant(question):
        return told
    again = {hit.record.id: hit.record for hit in hits if _repeats(hit, asked, languages)}
    replies: set[tuple[str, int]] = set()
    if asks(question):
        replies = {(one.session_id, one.last + 1) for one in again.values()}
    told = [_fainter(hit) if hit.record.id in again else hit for hit in told]
    told.sort(key=lambda hit: -hit.score)
    return _without_echoes(told, asked, languages, replies)


def _repeats(hit: Hit, asked: frozenset[str], languages: frozenset[str]) -> bool:
    text, is_user = _turn(hit)
    return is_user and repeats(asked, languages, text)


def _fainter(hit: Hit) -> Hit:
    """Lower a hit's score and relevance, so that it neither precedes nor hides an answer."""
    return replace(hit, score=hit.score * _FAINT, relevance=hit.relevance * _FAINT)


def _without_echoes(
    hits: Sequence[Hit],
    asked: frozenset[str],
    languages: frozenset[str],
    replies: Collection[tuple[str, int]],
) -> list[Hit]:
    """Drop assistant messages that repeat an earlier user message among the hits.

    A reply to an earlier copy of the question is also dropped if a relevant statement of the user
    precedes it. Such a reply derives from the statement, and may be outdated. A reply in the first
    person is not dropped for this reason, because a person may have written it.

    Args:
        asked: The question's words.
        replies: The session and seq of each reply to an earlier copy of the question.
    """
    said = [
        (_place(hit.record), said_in(text, languages))
        for hit in hits
        for text, is_user in [_turn(hit)]
        if is_user
    ]

    stated = [_place(hit.record) for hit in hits if _states(hit) and hit.relevance >= _SURE]

    def is_echo(hit: Hit) -> bool:
        text, is_user = _turn(hit)
        if is_user:
            return False
        is_reply = (hit.record.session_id, hit.record.first) in replies
        is_answered = is_reply and not _SPEAKER.search(text)
        if is_answered and any(at < _place(hit.record) for at in stated):
            return True
        own = said_in(text, languages)
        news = own - asked
        if not news or len(own) > 2 * FULL:
            return False
        least, place = _REPEATED * len(news), _place(hit.record)
        return any(len(news & theirs) >= least and at < place for at, theirs in said)

    return [hit for hit in hits if not is_echo(hit)]


def _leaning(stated: Hit, hits: Sequence[Hit], about: Sequence[str], question: str) -> list[Hit]:
    """Return the first short message that corrects the statement before it, such as "No, the 6th!".

    Such a message takes something back, reports a change, or gives a number or weekday.
    """
    after = [
        hit
        for hit in hits
        if _follows(hit.record, stated.record)
        and hit.record.session_id == stated.record.session_id
        and hit.record.first - stated.record.first <= _LEANS
        and _leans(_text(hit.record), _text(stated.record), about, question)
    ]
    return sorted(after, key=lambda hit: hit.record.first)[:1]


def _leans(text: str, stated: str, about: Sequence[str], question: str) -> bool:
    if len(text.split()) > FULL:
        return False
    if _TAKES_BACK.search(text):
        return True
    if _is_about_another(text, about) or _OF_ITS_OWN.search(text):
        return False
    if _names_another(text, stated, question):
        return False
    if _VALUE.search(text) and _VALUE.search(stated):
        return True
    return bool(_CHANGES.search(text) and _POINTS_BACK.search(text))


@lru_cache(_MOST_KNOWN)
def _asked(question: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the languages of a question, and its words in them."""
    languages = languages_of(question)
    return languages, said_in(question, languages)


def _newest_of_a_form(told: list[Hit], question: str) -> list[Hit]:
    """Move each statement among the first hits before the older statement that it contradicts."""
    languages, asked = _asked(question)
    first = [hit for hit in told[:_FIRST] if _states(hit)]
    words = {hit.record.id: said_in(_text(hit.record), languages) for hit in first}
    for hit in first:
        own = hit.record.id
        for old in told:
            if old.record.id == own:
                break
            theirs = words.get(old.record.id)
            if theirs is None or not theirs & asked <= words[own]:
                continue
            if not (_repeats_most(words[own], theirs) or _differs_in_value(hit, old)):
                continue
            if _follows(hit.record, old.record):
                told = _beside(told, old, hit, True)
                break
    return told


def _replaces(hit: Hit, stated: Hit, question: str) -> bool:
    """Return whether `hit` is a newer statement of the same speaker in the form of `stated`."""
    languages, asked = _asked(question)
    new, old = (said_in(_text(one.record), languages) for one in (hit, stated))
    return _has_form(new, old, asked) and _follows(hit.record, stated.record)


def _has_form(new: frozenset[str], old: frozenset[str], asked: frozenset[str]) -> bool:
    """Return whether a new statement has the form of an old one.

    This means that it contains most words of the old statement, and every word that the old
    statement shares with the question.
    """
    return old & asked <= new and _repeats_most(new, old)


def _names_another(text: str, stated: str, question: str) -> bool:
    """Return whether a text is about another thing than a statement, such as another room's code.

    This is so if the text has some of the words that the statement shares with the question, but
    not all of them.
    """
    languages, asked = _asked(question)
    shared, own = said_in(stated, languages) & asked, said_in(text, languages)
    return not own.isdisjoint(shared) and not shared <= own


def _repeats_most(new: frozenset[str], old: frozenset[str]) -> bool:
    return len(old & new) >= _SAME_FORM * len(old)


def _differs_in_value(hit: Hit, other: Hit) -> bool:
    """Return whether two texts differ only in one short span, which is then a value."""
    one, two = _uncounted(_text(hit.record)), _uncounted(_text(other.record))
    begin = _equal_words(one, two)
    same = begin + _equal_words(one[begin:][::-1], two[begin:][::-1])
    return same >= _SAME_WORDS and 2 * same >= max(len(one), len(two))


def _equal_words(one: Sequence[str], two: Sequence[str]) -> int:
    return len([*takewhile(bool, map(eq, one, two))])


@lru_cache(_MOST_TEXTS)
def _uncounted(text: str) -> tuple[str, ...]:
    """Return the words of a text in order, without a number that marks an item of a list."""
    return tuple(_WORD.findall(_COUNTED.sub("", text.casefold())))


def _newer(
    stated: Hit, newer: Newer, about: Sequence[str], question: str
) -> list[tuple[Hit, float]]:
    """Return the nearest newer statements.

    Each comes with the sum of its two cosines (see `Newer`), adjusted for the form of the texts.

    Args:
        about: The names in the question that relevant hits contain.
    """
    found: list[tuple[Hit, float]] = []
    before = _text(stated.record)
    kinds, start = _kinds(before), _start(before)
    for hit, near in newer(stated):
        text = _text(hit.record)
        if not _follows(hit.record, stated.record):
            continue
        if _is_about_another(text, about) and not _REFERS.search(text):
            continue
        if _names_another(text, before, question):
            continue
        evidence = _EVIDENCE * (_changes(hit) + (not kinds.isdisjoint(_kinds(text))))
        found.append((hit, near + evidence - _SAME_START * (_start(text) == start)))
    return found


def _few(count: int) -> float:
    """Return how much the similarity threshold is lowered if there are only `count` hits."""
    return _FEW * math.log(_MANY / min(_MANY, max(_LEAST_MANY, count)))


def _start(text: str) -> str:
    return next(iter(_uncounted(text)), "")


def _alone(hit: Hit) -> float:
    """Return how near a hit itself is to the question, without its neighbours.

    With neighbours, messages after an answer would score too high.
    """
    own = dict(zip(PARTS, hit.parts, strict=False))
    return own.get("meaning", 0.0) + own.get("words", 0.0)


def _changes(hit: Hit) -> bool:
    return _CHANGES.search(_text(hit.record)) is not None


def _beside(told: list[Hit], stated: Hit, hit: Hit, first: bool) -> list[Hit]:
    """Move `hit` directly before `stated` if `first`, otherwise directly behind it."""
    others = [one for one in told if one.record.id != hit.record.id]
    at = next((at for at, one in enumerate(others) if one.record.id == stated.record.id), 0)
    relevance = max(hit.relevance, stated.relevance)
    others.insert(at + (not first), replace(hit, score=others[at].score, relevance=relevance))
    return others


def _with_replies(told: list[Hit], hits: Sequence[Hit]) -> list[Hit]:
    """Add the assistant's replies to the user's statements, each before its statement."""
    for stated in [hit for hit in told if _turn(hit)[1] and hit.relevance >= _LIKELY]:
        place = (stated.record.session_id, stated.record.last + 1)
        reply = next(
            (hit for hit in hits if place == (hit.record.session_id, hit.record.first)), None
        )
        if reply is not None and not _turn(reply)[1]:
            told = _beside(told, stated, reply, True)
    return told


def _with_similar(told: list[Hit], samples: Sequence[Hit], newer: Newer) -> list[Hit]:
    """Add statements that are similar to the surest hits, each after its hit."""
    there = {hit.record.id for hit in told}
    for sample in samples:
        for hit, near in newer(sample):
            if near >= _SIMILAR and hit.record.id not in there and _states(hit):
                there.add(hit.record.id)
                told = _beside(told, sample, hit, False)
    return told


def _follows(record: Record, stated: Record) -> bool:
    """Return whether a record is a later statement of the same speaker."""
    same = record.metadata.get("speaker") == stated.metadata.get("speaker")
    return same and _place(record) > _place(stated) and asking(_text(record)) < _ALL


def _is_about(hit: Hit, names: Sequence[str]) -> bool:
    """Return whether a hit contains one of the names; True if there are no names."""
    return not names or any(name in hit.record.text for name in names)


def _is_about_another(text: str, about: Sequence[str]) -> bool:
    """Return whether a text has none of the names `about`, but is about its speaker or other names.

    False if `about` is empty.
    """
    if not about or any(name in text for name in about):
        return False
    if _SPEAKER.search(text):
        return True
    return any(name.casefold() not in _CALENDAR for name in names_in(f". {text}"))


def _kinds(text: str) -> frozenset[str]:
    """Return the kinds of values in a text: day, date, time, money."""
    return frozenset(str(found.lastgroup) for found in _KIND.finditer(text))


def _states(hit: Hit) -> bool:
    text, is_user = _turn(hit)
    return is_user and asking(text) < _ALL


def _turn(hit: Hit) -> tuple[str, bool]:
    """Return the text of a hit's message, and whether a user wrote it."""
    return _text(hit.record), hit.record.metadata.get("role") == "user"


def _text(record: Record) -> str:
    return _unnamed(record.text, record.metadata.get("speaker", ""))


@lru_cache(_MOST_TEXTS)
def _unnamed(text: str, speaker: str) -> str:
    """Return a text without its speaker's name.

    The cache returns the same string object, which other caches find faster.
    """
    return text.removeprefix(f"{speaker}: ")


def _place(record: Record) -> tuple[object, ...]:
    return record.created_at, record.session_id, record.first
