"""Moments as calls take them."""

from __future__ import annotations

from datetime import UTC, date, datetime

from pydantic import TypeAdapter, ValidationError

from agent_memory.core.limits import quoted
from agent_memory.errors import InvalidInput

_DATETIME = TypeAdapter(datetime)
_FIRST = datetime(1973, 3, 3, tzinfo=UTC)
"""Smaller numbers are no time of day and year: they tell of a place in a recording."""


def check_moment(name: str, value: datetime | date | None) -> datetime | None:
    """A moment with its time zone; of a date its beginning (UTC).

    Raises:
        InvalidInput: It has no time zone, or is neither.
    """
    if value is None or (isinstance(value, datetime) and value.tzinfo is not None):
        return value
    if isinstance(value, date) and not isinstance(value, datetime):
        return datetime(value.year, value.month, value.day, tzinfo=UTC)
    raise InvalidInput(
        f"{name} is {quoted(value)}. Give a datetime with a time zone, such as "
        "datetime(2026, 3, 1, tzinfo=UTC), or a date."
    )


def moment_said(value: object) -> datetime | None:
    """The moment (UTC) that epoch seconds or milliseconds, or a text in ISO 8601, tell of.

    None for anything else, and for numbers that are too small to be such seconds.
    """
    if type(value) not in (int, float, str):
        return None
    try:
        found = _DATETIME.validate_python(value)
        found = found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValidationError, OverflowError):
        return None
    return found if found >= _FIRST or (type(value) is str and value[4:5] == "-") else None
