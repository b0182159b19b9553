"""Statements and questions in messages and search hits. Pure.

Some functions detect messages that only ask, or only say "I don't know". Others read the author and
time of a statement. The functions that compare two texts decide whether the newer text may correct
the older text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from functools import lru_cache
from itertools import takewhile
from operator import eq
from typing import Any, NamedTuple

from agent_memory.core.query_text import asks, count_question_words, ends_with_question, requests
from agent_memory.core.records import Hit, Record
from agent_memory.core.text import names as names_in
from agent_memory.core.text import sentences, word_count, word_lists
from agent_memory.retrieval.dates import MONTHS, NUMBERS, WEEKDAYS
from agent_memory.retrieval.languages import languages_of
from agent_memory.retrieval.words import words

FULL = 12
"""A message with at least this number of words is long enough to state something."""

_NOT_KNOWING_TEXT = " ".join(word_lists()["not knowing"])
_MOST_CACHED = 4_000
_TAG = re.compile(
    r",\s*(?:can you believe (?:it|that)|you know|right|huh|eh|okay|ok|no|remember"
    r"|(?:is|are|was|were|do|does|did|has|have|wo|would|ca)n[’']t (?:it|that|they|we|i|you|s?he)"
    r"|oder|nicht wahr|verdad|n[’']est-ce pas|vero|né)\s*(?:\?+(?=\s|$)|$)",
    re.IGNORECASE,
)
"""A tag question: the text before it is a statement."""
_SEEN = 500  # number of characters in which a long text has more than `FULL` words
_SAME = 0.6  # minimum share of a question's words in a clause that repeats the question


@lru_cache(_MOST_CACHED)
def only_asks(text: str) -> bool:
    """Return whether a text is a question, and too short to state anything else."""
    return len(words(text[:_SEEN])) < FULL and ends_with_question(_TAG.sub(".", text))


@lru_cache(_MOST_CACHED)
def question_share(text: str) -> int:
    """Return the percentage of a text's words that are in questions; 0 if not `only_asks(text)`."""
    if not only_asks(text):
        return 0
    parts = sentences(_TAG.sub(".", text))
    return int(100 * sum(map(count_question_words, parts)) / sum(map(word_count, parts)))


def tells_nothing(
    query_words: frozenset[str], languages: frozenset[str], text: str, is_user: bool
) -> bool:
    """Return whether a message only repeats the question, or says that the answer is unknown."""
    is_question = only_asks(text)
    if is_user and not is_question:  # the most common case
        return False
    text_words = words_in(text, languages)
    if not text_words or len(text_words) > 2 * FULL:
        return False
    if is_question:
        return text_words <= query_words
    not_knowing = words_in(_NOT_KNOWING_TEXT, languages)
    return not text_words.isdisjoint(not_knowing) and text_words - query_words <= not_knowing


@lru_cache(_MOST_CACHED)
def repeats(query_words: frozenset[str], languages: frozenset[str], text: str) -> bool:
    """Return whether a message repeats the question, and its other clauses do not answer it.

    The other clauses count as an answer if they together contain half of the question's words.
    """
    least = max(1.0, _SAME * len(query_words))
    if len(words_in(text, languages) & query_words) < least:  # the most common case
        return False
    clauses = [clause for part in sentences(text) for clause in part.rsplit(", ", 1)]
    shared = {part: len(words_in(part, languages) & query_words) for part in clauses}
    same = [part for part in clauses if shared[part] >= least and asks(part)]
    if not same:
        return False
    others = frozenset().union(*(words_in(part, languages) for part in clauses if part not in same))
    return 2 * len(others & query_words) < len(query_words)


@lru_cache(_MOST_CACHED)
def words_in(text: str, languages: frozenset[str]) -> frozenset[str]:
    return frozenset(words(text, languages))


ALL = 100  # the value of `asking` for a text that consists of questions
_MOST_QUESTIONS = 100
_MOST_TEXTS = 4_000
_SAME_FORM = 0.6  # minimum share of a statement's words that a contradiction repeats
_SAME_WORDS = 3  # minimum number of equal words in two statements that differ only in a value

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
SPEAKER = re.compile(r"\b(?:I|[Mm]y|[Mm]e|[Mm]ine|[Mm]yself)\b")
_CALENDAR = frozenset([*MONTHS, *WEEKDAYS])
REFERS = re.compile(r"\b(?:he|she|they|it|his|hers?|their|er|sie|il|elle|lui|lei)\b", re.IGNORECASE)
_TAKES_BACK = re.compile(
    r"^\W*(?:no|nope|nah|not|wait|oops|sorry|actually|correction|scratch|strike|make (?:that|it)"
    r"|i meant|i misread|rather|better|hmm|nein|doch|falsch|moment|perd[oó]n|non|en fait|anzi)\b"
    r"|\b(?:i meant|make (?:that|it)|(?:scratch|strike) that|instead|after all|i misread|changed to"
    r"|change of plans?)\b",
    re.IGNORECASE,
)
_CONTRASTS = re.compile(
    r"(?:n['’]t|\bnot)\b[^.!?;]*,\s*(?:but|(?:it|he|she|they|that)(?:['’](?:s|re)| is| was))\b"
    r"|\b(?:typo|mistaken|by mistake|swapped|mixed (?:(?:it|that|them) )?up|(?:was|had it) wrong"
    r"|mis(?:read|heard|spoke|typed|spel(?:t|led)|counted))\b",
    re.IGNORECASE,
)
_OF_ITS_OWN = re.compile(
    r"^\W*(?:my|our|the|an?|I(?:'ve| have| need| want)(?: got)? an?|(?-i:[A-Z]\w+'s))\b",
    re.IGNORECASE,
)
"""The beginning of a sentence about something else, such as "My passport expires in 2031."."""
_POINTS_BACK = re.compile(r"\b(?:it|that|this|they|them|those|he|she|one)\b", re.IGNORECASE)


class TextHit(NamedTuple):
    """A hit, with what `answers` compares. The first fields are those of `Hit`."""

    record: Record
    score: float
    relevance: float
    parts: tuple[float, ...]
    cosine: float
    words: float
    encoding: Callable[[], Any] | None
    speaker: str
    text: str  # without the speaker's name
    is_user: bool  # whether a user wrote the message
    asks: bool  # whether the text consists of questions
    is_statement: bool  # whether a user wrote the message, and the text does not only ask
    place: tuple[datetime, str, int]

    def follows(self, statement: TextHit) -> bool:
        """Return whether the message is a later statement of the same speaker."""
        if self.speaker != statement.speaker or self.place <= statement.place:
            return False
        return not self.asks and not requests(self.text)


def messages_in(hits: Iterable[Hit]) -> list[TextHit]:
    return [
        TextHit(
            *(record, hit.score, hit.relevance, hit.parts, hit.cosine, hit.words, hit.encoding),
            *_message(record.text, about.get("speaker", ""), about.get("role") == "user"),
            (record.created_at, record.session_id, record.first),
        )
        for hit in hits
        for record in (hit.record,)
        for about in (record.metadata,)
    ]


@lru_cache(_MOST_TEXTS)
def _message(text: str, speaker: str, is_user: bool) -> tuple[str, str, bool, bool, bool]:
    """Return the fields of `TextHit` from the speaker on, without the place."""
    text = text.removeprefix(f"{speaker}: ")
    asks = question_share(text) == ALL
    return speaker, text, is_user, asks, is_user and not asks


@lru_cache(_MOST_QUESTIONS)
def question_words(question: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the languages of a question, and its words in them."""
    languages = languages_of(question)
    return languages, words_in(question, languages)


@lru_cache(_MOST_TEXTS)
def changes(text: str) -> bool:
    """Return whether a text has words of change, such as "now" or "switched"."""
    return _CHANGES.search(text) is not None


@lru_cache(_MOST_TEXTS)
def kinds_of_values(text: str) -> frozenset[str]:
    """Return the kinds of values in a text: day, date, time, money."""
    return frozenset(str(match.lastgroup) for match in _KIND.finditer(text))


def first_word(text: str) -> str:
    return next(iter(_uncounted(text)), "")


@lru_cache(_MOST_TEXTS)
def _uncounted(text: str) -> tuple[str, ...]:
    """Return the words of a text in order, without a number that marks an item of a list."""
    return tuple(_WORD.findall(_COUNTED.sub("", text.casefold())))


def leans(text: str, statement: str, about: Sequence[str], question: str) -> bool:
    if word_count(text) > FULL:
        return False
    if takes_back(text):
        return True
    if is_about_another(text, about) or _OF_ITS_OWN.search(text):
        return False
    if names_another(text, statement, question):
        return False
    if _VALUE.search(text) and _VALUE.search(statement):
        return True
    return changes(text) and _POINTS_BACK.search(text) is not None


def takes_back(text: str) -> bool:
    """Return whether a text takes an earlier statement back, such as "Actually, ..."."""
    return _TAKES_BACK.search(text) is not None


@lru_cache(_MOST_TEXTS)
def contrasts(text: str) -> bool:
    """Return whether a text puts right what was wrong: "It isn't the 5th, it's the 6th"."""
    return takes_back(text) or _CONTRASTS.search(text) is not None


def is_about_another(text: str, about: Sequence[str]) -> bool:
    """Return whether a text has none of the names `about`, but is about its speaker or other names.

    False if `about` is empty.
    """
    if not about or any(name in text for name in about):
        return False
    if SPEAKER.search(text):
        return True
    return any(name.casefold() not in _CALENDAR for name in names_in(f". {text}"))


def names_another(text: str, statement: str, question: str) -> bool:
    """Return whether a text is about another thing than a statement, such as another room's code.

    Such a text has some of the words that the statement shares with the question, but not all of
    these words.
    """
    languages, query_words = question_words(question)
    shared, own = words_in(statement, languages) & query_words, words_in(text, languages)
    return not own.isdisjoint(shared) and not shared <= own


def has_form(new: frozenset[str], old: frozenset[str], query_words: frozenset[str]) -> bool:
    """Return whether a new statement has the form of an old statement.

    This means that it contains most words of the old statement, and every word that the old
    statement shares with the question.
    """
    return old & query_words <= new and repeats_most(new, old)


def repeats_most(new: frozenset[str], old: frozenset[str]) -> bool:
    return len(old & new) >= _SAME_FORM * len(old)


def differs_in_value(text: str, other: str) -> bool:
    """Return whether two texts differ only in one short span, which is then a value."""
    new, old = _uncounted(text), _uncounted(other)
    begin = _equal_words(new, old)
    same = begin + _equal_words(new[begin:][::-1], old[begin:][::-1])
    return same >= _SAME_WORDS and 2 * same >= max(len(new), len(old))


def _equal_words(first: Sequence[str], second: Sequence[str]) -> int:
    return len([*takewhile(bool, map(eq, first, second))])
