"""Moments as calls take them."""

from __future__ import annotations

from datetime import UTC, date, datetime

from agent_memory.errors import InvalidInput


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
        f"{name} is {value!r}. Give a datetime with a time zone, such as "
        "datetime(2026, 3, 1, tzinfo=UTC), or a date."
    )
