"""Whether a text says something: by keywords, whatever way it writes dates. Pure."""

from __future__ import annotations

import re
from functools import lru_cache

_MONTHS = {
    month: number
    for number, names in enumerate(
        (
            "january januar jan", "february februar feb", "march märz mar", "april apr",
            "may mai", "june juni jun", "july juli jul", "august aug", "september sept sep",
            "october oktober oct okt", "november nov", "december dezember dec dez",
        ),
        1,
    )
    for month in names.split()
}  # fmt: skip
_MONTH = rf"({'|'.join(_MONTHS)})\.?"
_DAY_FIRST = re.compile(rf"\b(?:(\d{{1,2}})(?:st|nd|rd|th|\.)?(?: of)? )?{_MONTH},? (\d{{4}})\b")
_MONTH_FIRST = re.compile(rf"\b{_MONTH} (\d{{1,2}})(?:st|nd|rd|th)?,? (\d{{4}})\b")
_FULL = re.compile(r"\b(?:19|20)\d\d(?:-\d\d(?:-\d\d)?)?\b")
_LIKE = 0.6
"""The share of words that two facts have in common which say the same, for all we can tell."""


@lru_cache(maxsize=10_000)
def plain(text: str) -> str:
    """A text folded."""
    return " ".join(text.replace("’", "'").casefold().split())  # noqa: RUF001


@lru_cache(maxsize=10_000)
def dated(text: str) -> str:
    """A text folded, with its dates as YYYY-MM-DD or YYYY-MM."""
    text = _MONTH_FIRST.sub(lambda m: _iso(m[3], m[1], m[2]), plain(text))
    return _DAY_FIRST.sub(lambda m: _iso(m[3], m[2], m[1]), text)


def _iso(year: str, month: str, day: str | None) -> str:
    return f"{year}-{_MONTHS[month]:02}" + (f"-{int(day):02}" if day else "")


def says(text: str, keyword: str) -> bool:
    """Whether a text has a keyword: `a|b` is either, `a&b` both.

    A keyword begins where a word begins; one that ends in a digit ends there too.
    """
    return any(
        all(
            _has(plain(text), plain(part)) or _has(dated(text), dated(part))
            for part in either.split("&")
        )
        for either in keyword.split("|")
    )


def _has(text: str, part: str) -> bool:
    end = r"(?!\d)" if part[-1].isdigit() else ""
    return re.search(rf"(?<!\w){re.escape(part)}{end}", text) is not None


def dates(text: str) -> list[str]:
    """The days, months and years that a text names."""
    return _FULL.findall(dated(text))


def alike(words: frozenset[str], others: frozenset[str]) -> bool:
    """Whether two texts of these words say the same, for all we can tell."""
    return bool(words) and len(words & others) / len(words | others) >= _LIKE
