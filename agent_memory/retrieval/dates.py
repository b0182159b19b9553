"""Days, months and years that a question names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple

MONTHS = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
_DAY = r"(\d{1,2})(?:st|nd|rd|th)?"
_WRITTEN = re.compile(
    rf"\b(?:{_DAY}\s+(?:of\s+)?)?({'|'.join(MONTHS)})\b(?:\s+{_DAY}\b)?(?:,?\s+(\d{{4}})\b)?",
    re.IGNORECASE,
)
_ISO = re.compile(r"\b(\d{4})-(\d{2})(?:-(\d{2}))?\b")


class Date(NamedTuple):
    """A date as far as it was named."""

    year: int | None
    month: int
    day: int | None

    def holds(self, moment: datetime) -> bool:
        """Whether a moment lies within it."""
        named = (self.year, self.month, self.day)
        there = (moment.year, moment.month, moment.day)
        return all(one in (None, other) for one, other in zip(named, there, strict=True))


def dates(text: str) -> list[Date]:
    """The dates in a text: "8 May 2023", "May 8th", "in May", "2023-05-08".

    "May" alone counts only where it is written as a name of its own.
    """
    return [*_written(text), *_numbers(text)]


def _written(text: str) -> Iterator[Date]:
    for found in _WRITTEN.finditer(text):
        before, month, after, year = found.groups()
        day = before or after
        if month.islower() and not (day or year):  # "may" and "march" are words, too
            continue
        number = MONTHS.index(month.lower()) + 1
        yield Date(int(year) if year else None, number, int(day) if day else None)


def _numbers(text: str) -> Iterator[Date]:
    for year, month, day in _ISO.findall(text):
        yield Date(int(year), int(month), int(day) if day else None)
