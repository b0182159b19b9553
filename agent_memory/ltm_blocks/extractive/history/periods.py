"""Stretches of time, and the dates that a model gives. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

Period = tuple[datetime, datetime]
"""From when, and until when, that moment excluded."""

BEGINNING = datetime.min.replace(tzinfo=UTC)
END = datetime.max.replace(tzinfo=UTC)

_DATE = re.compile(r"(\d{4})(?:-(\d{1,2})(?:-(\d{1,2}))?)?(?=$|[T ])")


def parse(text: str | None) -> Period | None:
    """The time that a date names: a day, a month ("2024-03") or a year; None for what is no date.

    What follows a day, such as the time, is left out.
    """
    found = _DATE.match(text.strip()) if text else None
    if found is None:
        return None
    year, month, day = (int(part) if part else None for part in found.groups())
    assert year is not None
    try:
        begin = datetime(year, 1 if month is None else month, 1 if day is None else day, tzinfo=UTC)
        if day is not None:
            return begin, begin + timedelta(days=1)
        if month is not None:
            return begin, datetime(year + month // 12, month % 12 + 1, 1, tzinfo=UTC)
        return begin, datetime(year + 1, 1, 1, tzinfo=UTC)
    except (ValueError, OverflowError):  # there is no such day
        return None


def day_of(moment: datetime) -> datetime:
    """The beginning of a moment's day (UTC)."""
    return moment.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def written(begin: datetime | None, end: datetime | None) -> str:
    """A stretch of time as people write it: a day, a month or a year where it is one, else its
    first and last; empty for none."""
    if begin is None or end is None:
        return f"since {_first(begin)}" if begin else f"until {_last(end)}" if end else ""
    for form in (f"{begin:%Y}", f"{begin:%Y-%m}", f"{begin:%Y-%m-%d}"):
        if parse(form) == (begin, end):
            return form
    if begin.day == end.day == 1:
        return f"{_first(begin)} to {_last(end)}"
    return f"{begin:%Y-%m-%d} to {end - timedelta(days=1):%Y-%m-%d}"


def _first(begin: datetime) -> str:
    """As exact as it may have been said: "since 2019" is not known to be its first day."""
    return f"{begin:{'%Y' if (begin.month, begin.day) == (1, 1) else _month_or_day(begin)}}"


def _last(end: datetime) -> str:
    last = end - timedelta(days=1)
    return f"{last:{'%Y' if (end.month, end.day) == (1, 1) else _month_or_day(end)}}"


def _month_or_day(bound: datetime) -> str:
    return "%Y-%m" if bound.day == 1 else "%Y-%m-%d"


def without(period: Period, others: Iterable[Period]) -> list[Period]:
    """What is left of a period, in order."""
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
