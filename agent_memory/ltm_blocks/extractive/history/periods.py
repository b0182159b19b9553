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
