"""Dates in a text, and the period that a question asks about. Pure."""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Callable, Iterator
from datetime import date, datetime, timedelta
from functools import partial
from typing import NamedTuple

from agent_memory.core.text import unaccented, word_lists
from agent_memory.retrieval.languages import ENGLISH, languages_of

ENGLISH_OF = {
    other: section.removeprefix("date ")
    for section, others in word_lists().items()
    if section.startswith("date ")
    for other in others
}
"""The English word for each foreign word or synonym."""


MONTHS = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
_DAY = r"(\d{1,2})(?:st|nd|rd|th)?"
_VERB = r"may (?:I|we|you|he|she|it|they|my|our|the)\b"  # "May I come?" is not about a month
_WRITTEN = re.compile(
    rf"\b(?:{_DAY}\s+(?:of\s+)?)?(?!{_VERB})({'|'.join(MONTHS)})\b(?:\s+{_DAY}\b)?(?:,?\s+(\d{{4}})\b)?",
    re.IGNORECASE,
)
_ISO = re.compile(r"\b(\d{4})-(\d{2})(?:-(\d{2}))?\b")


class Date(NamedTuple):
    """A date. The year and the day are None if the text does not name them."""

    year: int | None
    month: int
    day: int | None

    def holds(self, moment: datetime) -> bool:
        """Return whether a timestamp matches all parts that the date names."""
        named = (self.year, self.month, self.day)
        actual = (moment.year, moment.month, moment.day)
        return all(part in (None, other) for part, other in zip(named, actual, strict=True))


def dates(text: str) -> list[Date]:
    """Return the dates in a text: "8 May 2023", "May 8th", "in May", "2023-05-08".

    A bare month name counts only if it is capitalized.
    """
    iso = [Date(int(y), int(m), int(d) if d else None) for y, m, d in _ISO.findall(text)]
    return [*_written(text), *iso]


def _written(text: str) -> Iterator[Date]:
    for match in _WRITTEN.finditer(text):
        before, month, after, year = match.groups()
        day = before or after
        if month.islower() and not (day or year):  # "may" and "march" are also common words
            continue
        number = MONTHS.index(month.lower()) + 1
        yield Date(int(year) if year else None, number, int(day) if day else None)


class Period(NamedTuple):
    """A range of days, both ends included."""

    first: date
    last: date


WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_SEASONS = {"spring": 3, "summer": 6, "autumn": 9, "fall": 9, "winter": 12}
NUMBERS = (
    *("one", "two", "three", "four", "five", "six"),
    *("seven", "eight", "nine", "ten", "eleven", "twelve"),
)
_AMOUNT = {
    **{word: number for number, word in enumerate(NUMBERS, 1)},
    **{"a": 1, "an": 1, "couple of": 2, "couple": 2, "few": 3, "several": 3},
}
_EVENT = re.compile(
    r"\b(before|after|since) ((?:I|we|my|our|the|he|she|they)\b(?: \S+){1,8})$", re.IGNORECASE
)
_MANY = rf"(?:a )?(\d{{1,3}}|{'|'.join(_AMOUNT)})"
_UNIT = r"(day|week|weekend|month|year)s?"
_WORD = re.compile(r"\w+(?:[-']\w+)*")
_WEEKEND = re.compile(r"\bfi[mn] de semana\b|\bfine settimana\b")


def period_of(text: str, today: date) -> Period | None:
    """Return the days that a question asks about: "last weekend", "two weeks ago", "in March 2024".

    None if the question names no time, or a time in the future ("next week", "Am I free on
    Friday?"). `ENGLISH_OF` has the words of other languages. A date without a year means the latest
    such date that has begun.
    """
    folded = _in_english(text)
    is_plan = _PRESENT.search(folded) is not None and _PAST.search(folded) is None
    for pattern, period in _PAST_PERIODS if is_plan else _PERIODS:
        if match := pattern.search(folded):
            return period(today, match)
    named = dates(text if folded == text.casefold() else folded.title())[:1]
    return _named(named[0], today) if named and (named[0].year or not is_plan) else None


class Event(NamedTuple):
    """An event that a question uses as a date: "before I moved"."""

    # whether the question asks about the time before the event, rather than the time since it
    before: bool
    text: str  # the event, in the question's words

    def period(self, at: date) -> Period:
        """Return the days before or since the event, given its date."""
        return Period(date.min, at - timedelta(1)) if self.before else Period(at, date.max)


def event_of(text: str) -> Event | None:
    """Return the event that a question uses as a date; None if there is none."""
    match = _EVENT.search(text.strip())
    return Event(match[1].lower() == "before", match[2].rstrip("?.! ")) if match else None


def _in_english(text: str) -> str:
    folded = text.casefold().replace("\u2019", "'")
    if languages_of(text) == ENGLISH:
        return folded
    plain = _WEEKEND.sub("weekend", unaccented(folded).replace("il y a", "ago"))
    words: list[str] = _WORD.findall(plain)
    return " ".join([ENGLISH_OF.get(word, word) for word in words])


def _named(named: Date, today: date) -> Period | None:
    year = named.year or today.year
    try:
        period = _days(year, named.month, named.day)
        if named.year is None and period.first > today:
            period = _days(year - 1, named.month, named.day)
    except ValueError:  # no such day
        return None
    return period


def _days(year: int, month: int, day: int | None) -> Period:
    last = monthrange(year, month)[1]
    return Period(date(year, month, day or 1), date(year, month, day or last))


def _ago(today: date, match: re.Match[str]) -> Period:
    many, unit = match.groups()
    count = _AMOUNT.get(many) or int(many)
    at = before(today, count, unit)
    return Period(at - timedelta(3), at + timedelta(3)) if unit == "week" else period_at(at, unit)


def _since(today: date, match: re.Match[str]) -> Period:
    many, unit = match.groups()
    return Period(before(today, _AMOUNT.get(many) or int(many), unit), today)


def _last(today: date, match: re.Match[str], count: int = 1, unit: str = "") -> Period:
    unit = unit or match[1]
    return period_at(before(today, count, unit), unit)


_day = partial(_last, unit="day")


def _weekday(today: date, match: re.Match[str]) -> Period:
    at = today - timedelta((today.weekday() - WEEKDAYS.index(match[1]) - 1) % 7 + 1)
    return Period(at, at)


def _season(today: date, match: re.Match[str]) -> Period:
    month = _SEASONS[match[1]]
    year = int(match[2]) if match[2] else today.year - (date(today.year, month, 1) > today)
    after = date(year + (month == 12), month % 12 + 3, 1)
    return Period(date(year, month, 1), after - timedelta(1))


def before(today: date, count: int, unit: str) -> date:
    """Return the day that is a number of units before today. A week and a weekend have 7 days."""
    if unit in ("day", "week", "weekend"):
        return today - timedelta(count if unit == "day" else 7 * count)
    months = today.year * 12 + today.month - 1 - count * (12 if unit == "year" else 1)
    year, month = max(1, months // 12), months % 12 + 1
    return date(year, month, min(today.day, monthrange(year, month)[1]))


def period_at(at: date, unit: str) -> Period:
    """Return the day, week, weekend, month or year of a day."""
    if unit in ("week", "weekend"):
        monday = at - timedelta(at.weekday())
        return Period(monday + timedelta(5 * (unit == "weekend")), monday + timedelta(6))
    if unit == "year":
        return Period(date(at.year, 1, 1), date(at.year, 12, 31))
    return Period(at, at) if unit == "day" else _days(at.year, at.month, None)


_ToPeriod = Callable[[date, re.Match[str]], Period]
_DAYS_OF_WEEK = "|".join(WEEKDAYS)
_OF_YEAR = r"(?: (?:of )?((?:19|20)\d\d)\b)?"
_PRESENT = re.compile(r"\b(?:am|is|are|do|does|will|shall|can|should|must)\b|'(?:s|re|m|ll)\b")
_PAST = re.compile(
    r"\b(?:did|was|were|had|have|has|been|took|went|saw|ate|bought|met|got|said|told|came|made|gave"
    r"|wrote|ran|left|found|lost|won|drove|flew|read|(?:i|we|you|he|she|it|they|who) \w+[^e\W]ed)\b"
)


def _compiled(*periods: tuple[str, _ToPeriod]) -> list[tuple[re.Pattern[str], _ToPeriod]]:
    return [(re.compile(pattern), period) for pattern, period in periods]


_PAST_PERIODS = _compiled(
    (r"\bday before yesterday\b|\bvorgestern\b|\bavant-hier\b", partial(_day, count=2)),
    (r"\byesterday\b|\blast night\b", _day),
    (r"\b(?:did|was|were|have|had)\b.*\b(?:today|this morning)\b", partial(_day, count=0)),
    (rf"\b{_MANY} {_UNIT} ago\b", _ago),
    (rf"\bago {_MANY} {_UNIT}\b", _ago),
    (rf"\b(?:last|past) {_MANY} {_UNIT}\b", _since),
    (r"\b(?:last|past|previous) (week|weekend|month|year)\b", _last),
    (r"\b(week|weekend|month|year) before last\b", partial(_last, count=2)),
    (r"\b(week|weekend|month|year) last\b", _last),
    (
        r"\b(?:did|was|were|have|had)\b.*\bthis (week|month|year)\b",
        lambda today, match: Period(period_at(today, match[1]).first, today),
    ),
    (rf"\blast ({_DAYS_OF_WEEK})\b", _weekday),
    (rf"\b({_DAYS_OF_WEEK}) last\b", _weekday),
    (rf"\blast ({'|'.join(_SEASONS)})\b{_OF_YEAR}", _season),
    (
        r"\b(?:in|during) ((?:19|20)\d\d)\b",
        lambda _, match: period_at(date(int(match[1]), 1, 1), "year"),
    ),
)
_PERIODS = (  # the last three may also be in the future
    *_PAST_PERIODS,
    *_compiled(
        (rf"\b(?:on|this) ({_DAYS_OF_WEEK})\b", _weekday),
        (
            r"(?<!\bfor )\b(?:on|at|in|over|this|my)(?: the)? weekend\b",
            lambda today, _: period_at(today - timedelta((today.weekday() - 5) % 7), "weekend"),
        ),
        (rf"\b(?:in|this|during|over)(?: the)? ({'|'.join(_SEASONS)})\b{_OF_YEAR}", _season),
    ),
)
