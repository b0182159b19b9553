"""Validation and conversion of timestamps, durations and time zones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from math import inf
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import TypeAdapter

from agent_memory.core.limits import quoted
from agent_memory.errors import InvalidInput

TIMES = ("create_time", "timestamp")
"""Fields with the time of a message without `created_at`. They are never sent to a model."""

Timezone = str | Mapping[str, str] | Callable[[str | None], str | None] | None

_MOST_SECONDS = timedelta.max.total_seconds() // 2
_DATETIME = TypeAdapter(datetime)
BEGINNING = datetime.min.replace(tzinfo=UTC)
_FIRST = datetime(1973, 3, 3, tzinfo=UTC)
"""Numbers that stand for an earlier time are taken for positions in a recording."""


def now_utc() -> datetime:
    return datetime.now(UTC)


def check_moment(
    name: str, value: datetime | date | None, zone: ZoneInfo | None = None
) -> datetime | None:
    """Return a time with a time zone in UTC. A date becomes its first midnight in `zone`."""
    if value is None:
        return None
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day, tzinfo=zone or UTC)
    if isinstance(value, datetime) and value.tzinfo is not None:
        with suppress(OverflowError):  # outside the years 1 to 9999 in UTC
            return value.astimezone(UTC)
    raise InvalidInput(
        f"{name} is {quoted(value)}. Give a datetime with a time zone, such as "
        "datetime(2026, 3, 1, tzinfo=UTC), in JSON 2026-03-01T00:00:00Z, or a date."
    )


def parse_time(value: Any) -> datetime | None:
    """Parse a number of epoch seconds or milliseconds, or a text in ISO 8601.

    Return None for other values, and for numbers below about 100,000,000 (March 1973).
    """
    if type(value) not in (int, float, str):
        return None
    for parse in (_DATETIME.validate_python, datetime.fromisoformat):  # pydantic refuses "+02"
        with suppress(ValueError, OverflowError, TypeError):
            time = parse(value)
            time = time.replace(tzinfo=UTC) if time.tzinfo is None else time
            time.astimezone(UTC)  # fails outside the years 1 to 9999
            return time if time >= _FIRST or (type(value) is str and value[4:5] == "-") else None
    return None


def duration_of(name: str, value: float | timedelta) -> timedelta:
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < inf:
        return timedelta(seconds=min(value, _MOST_SECONDS))
    if not isinstance(value, timedelta) or value <= timedelta():
        raise InvalidInput(f"{name} is {quoted(value)}. Give seconds above 0, or a timedelta.")
    return value


class Zones:
    """The time zone of each user, from the setting `timezone`.

    Args:
        setting: The name of a zone for all users; a mapping of user ids to names, with "*" for all
            other users; or a function that returns the name for a user id. The user id is None for
            a session without a user. None means UTC.
    """

    def __init__(self, setting: Timezone = None) -> None:
        self.by_user = not isinstance(setting, str | None)
        self._setting = setting

    def of(self, user_id: str | None) -> ZoneInfo | None:
        """Return the zone of a user. None for UTC."""
        setting = self._setting
        if setting is None or isinstance(setting, str):
            return zone_of(setting)
        if isinstance(setting, Mapping):
            return zone_of(setting.get(user_id or "", setting.get("*")))
        return zone_of(setting(user_id))


IN_UTC = Zones()


def zone_of(name: str | None) -> ZoneInfo | None:
    """Return the time zone with an IANA name. None if no zone has the name."""
    try:
        return None if name is None else ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None
