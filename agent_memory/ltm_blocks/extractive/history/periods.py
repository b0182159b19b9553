"""Periods of time, parsed from a model's dates and from phrases such as "last week". Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from typing import Literal, NamedTuple, get_args

from agent_memory.retrieval.dates import MONTHS, NUMBERS, WEEKDAYS, before, dates, period_at
from agent_memory.retrieval.dates import Period as Days

Period = tuple[datetime, datetime]
"""Start and end; the end is exclusive."""

Precision = Literal["year", "month", "day"]
"""The calendar unit of a date. A period whose bounds need a finer unit is shown in that unit."""

END = datetime.max.replace(tzinfo=UTC)

_DATE = re.compile(r"(\d{4})(?:-(\d{1,2})(?:-(\d{1,2}))?)?(?=$|[T ])")


def parse(text: str | None) -> Period | None:
    """Return the period of a date: a day, a month ("2024-03") or a year; None if it is not a date.

    Text after the date, such as a time, is ignored.
    """
    match = _DATE.match(text.strip()) if text else None
    if match is None:
        return None
    year, month, day = (int(part) if part else None for part in match.groups())
    assert year is not None
    unit = "year" if month is None else "month" if day is None else "day"
    try:
        begin = date(year, 1 if month is None else month, 1 if day is None else day)
        return _exclusive(period_at(begin, unit))
    except (ValueError, OverflowError):  # the calendar has no such day
        return None


def _exclusive(days: Days) -> Period:
    return day_of(days.first), day_of(days.last) + timedelta(days=1)


def day_of(moment: date) -> datetime:
    """Return a day, or a timestamp's day in the timestamp's time zone, as midnight UTC."""
    return datetime(moment.year, moment.month, moment.day, tzinfo=UTC)


def written(begin: datetime | None, end: datetime | None, precision: Precision = "year") -> str:
    """Return a period in words: "2024-03", "2019 to 2024-03", "since 2019" or "until 2020".

    Return "" if both bounds are None. `precision` is that of `begin`.
    """
    first = begin and _shown(begin, begin, precision)
    last = end and _shown(end - timedelta(days=1), end, precision)
    if begin is None or end is None:
        return f"since {first}" if first else f"until {last}" if last else ""
    for form in (f"{begin:{each}}" for each in _FORMS):
        if parse(form) == (begin, end):
            return form
    if begin.day == end.day == 1:
        return f"{first} to {last}"
    return f"{begin:%Y-%m-%d} to {end - timedelta(days=1):%Y-%m-%d}"


def is_date(begin: datetime | None, end: datetime | None) -> bool:
    """Return whether a period is one day, month or year."""
    return begin is not None and end is not None and parse(written(begin, end)) == (begin, end)


_FORMS = ("%Y", "%Y-%m", "%Y-%m-%d")


def _shown(day: datetime, bound: datetime, precision: Precision) -> str:
    """Return a day at least as precise as its bound: a bound on 1 January may give a year."""
    least = 2 if bound.day > 1 else 1 if bound.month > 1 else 0
    return f"{day:{_FORMS[max(least, get_args(Precision).index(precision))]}}"


def precision_of(period: Period) -> Precision:
    """Return the calendar unit of a period: "day" if it is neither a year nor a month."""
    begin, _ = period
    if parse(f"{begin:%Y}") == period:
        return "year"
    return "month" if parse(f"{begin:%Y-%m}") == period else "day"


def without(period: Period, others: Iterable[Period]) -> list[Period]:
    """Return the parts of a period that no other period covers, in order."""
    left = [period] if period[0] < period[1] else []
    for begin, end in others:
        if begin >= end:
            continue
        left = [
            piece
            for since, until in left
            for piece in ((since, min(until, begin)), (max(since, end), until))
            if piece[0] < piece[1]
        ]
    return sorted(left)


_WORDS = (
    *NUMBERS,
    *("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty"),
)
_NUMBERS = {"a": 1, "an": 1, **{word: number for number, word in enumerate(_WORDS, 1)}}
_FAR = {"day": 400, "week": 60, "month": 36, "year": 120}
"""Maximum distances of relative dates, by unit."""

_SINGLE = {
    "today": 0, "tonight": 0, "this morning": 0, "this afternoon": 0, "this evening": 0,
    "earlier today": 0, "later today": 0, "yesterday": -1, "last night": -1,
    "the day before yesterday": -2, "day before yesterday": -2, "tomorrow": 1,
    "the day after tomorrow": 2, "day after tomorrow": 2,
}  # fmt: skip
_SIDES = {
    "this past": -1, "last": -1, "past": -1, "previous": -1, "this": 0, "next": 1, "coming": 1,
}  # fmt: skip

_LEAD = re.compile(r"^(?:just|only|back|on|in|at|during|by|from|exactly)\s+")
_PART = re.compile(r"\s+(?:early|late|morning|afternoon|evening|night)$")
_NUMBER = rf"(?P<number>\d{{1,3}}|{'|'.join(_NUMBERS)})"
_UNIT = r"(?P<unit>day|week|month|year)s?"
_AGO = re.compile(rf"{_NUMBER} {_UNIT} ago")
_AHEAD = re.compile(rf"(?:in )?{_NUMBER} {_UNIT}(?: from (?:now|today))?")
_FOR = re.compile(rf"(?:for )?(?:the )?(?:last |past )?{_NUMBER} {_UNIT}(?: now)?")
_SIDE = re.compile(
    rf"(?:the )?(?P<side>{'|'.join(_SIDES)}) "
    rf"(?P<what>week|weekend|month|year|{'|'.join(WEEKDAYS)}|{'|'.join(MONTHS)})"
)


class Meant(NamedTuple):
    """The time that a phrase means."""

    period: Period
    # whether the phrase states only a beginning: "since May", "for two years"
    is_beginning: bool = False


def meant(phrase: str, stated_at: datetime) -> Meant | None:
    """Return the time that a phrase means; None if it is vague, ambiguous or not a time."""
    text = " ".join(phrase.casefold().replace("\u2019", "'").split()).strip(" .,;:!?\"'()")
    today = day_of(stated_at)
    try:
        if text.startswith("since "):
            period = _period(text.removeprefix("since "), today)
            return None if period is None or period[0] > today else Meant(period, is_beginning=True)
        long = _FOR.fullmatch(text) if text.startswith("for ") else None
        period = _off(long, today, -1) if long is not None else _period(text, today)
        return None if period is None else Meant(period, is_beginning=long is not None)
    except (OverflowError, ValueError):  # the date is outside the calendar
        return None


def _period(text: str, today: datetime) -> Period | None:
    if text.startswith("in ") and (ahead := _AHEAD.fullmatch(text)):
        return _off(ahead, today, 1)
    while (bare := _LEAD.sub("", text)) != text:
        text = bare
    for form in (text, _PART.sub("", text)):
        if form in _SINGLE:
            return _unit_at(today, _SINGLE[form], "day")
        if ago := _AGO.fullmatch(form):
            return _off(ago, today, -1)
        if " from " in form and (ahead := _AHEAD.fullmatch(form)):
            return _off(ahead, today, 1)
        if side := _SIDE.fullmatch(form):
            return _relative(_SIDES[side["side"]], side["what"], today)
    return _named(text)


def _off(match: re.Match[str], today: datetime, sign: int) -> Period | None:
    number, unit = match["number"], match["unit"]
    many = int(number) if number.isdigit() else _NUMBERS[number]
    if not 0 < many <= _FAR[unit]:
        return None
    return _unit_at(today, sign * many, unit)


def _relative(off: int, what: str, today: datetime) -> Period | None:
    if what in WEEKDAYS:
        return _weekday(off, WEEKDAYS.index(what), today)
    if what in MONTHS:
        return _month_named(off, MONTHS.index(what) + 1, today)
    return _unit_at(today, off, what)


def _unit_at(today: datetime, off: int, unit: str) -> Period:
    """Return the day, week, weekend, month or year that is `off` units after the current one."""
    return _exclusive(period_at(before(today.date(), -off, unit), unit))


def _weekday(off: int, number: int, today: datetime) -> Period | None:
    """Return the day that a weekday means. "last Friday" is the latest Friday before today.

    None for "next Friday", which is ambiguous.
    """
    if off < 0:
        return _unit_at(today, -((today.weekday() - number - 1) % 7 + 1), "day")
    return _unit_at(today, number - today.weekday(), "day") if off == 0 else None


def _month_named(off: int, number: int, today: datetime) -> Period | None:
    """Return the period that a month means. "last May" is the latest May that is over.

    "this May" is in this year, "next May" is the first May after this month.
    """
    year = today.year
    if off < 0 and number >= today.month:
        year -= 1
    if off > 0 and number <= today.month:
        year += 1
    return parse(f"{year:04}-{number:02}")


def _named(text: str) -> Period | None:
    """Return the period of a date with its year: "8 May 2023", "May 2023", "2023"."""
    if re.fullmatch(r"(?:19|20)\d{2}", text):
        return parse(text)
    bare = text.removeprefix("the ")
    named = dates(bare.title())
    if len(named) != 1 or named[0].year is None or len(bare.split()) > _MOST_WORDS:
        return None
    year, month, day = named[0]
    return parse(f"{year:04}-{month:02}" + (f"-{day:02}" if day else ""))


_MOST_WORDS = 4  # maximum words of a date, as in "8th of May 2023"
