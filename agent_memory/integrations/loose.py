"""Reads fields from other programs' JSON, whose values may have any type."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from agent_memory.core.timestamps import parse_time

Json = dict[str, Any]


def text_in(value: object) -> str | None:
    """Return a non-blank text; None for other values."""
    return value if isinstance(value, str) and value.strip() else None


def moment(*values: object) -> datetime | None:
    """Return the first value that is a time, as a datetime; None if there is none.

    A time is a datetime, a number of epoch seconds or milliseconds, or a text in ISO 8601. A time
    without a zone is UTC.
    """
    for value in values:
        if isinstance(value, float) and not math.isfinite(value):
            continue
        if isinstance(value, datetime):
            return value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        if (time := parse_time(value)) is not None:
            return time
    return None


def dated(message: Json, at: datetime | None) -> Json:
    """Return a message with the time `at`. If `at` is None, return the message unchanged."""
    return message if at is None else {**message, "created_at": at}


def mapping(value: object) -> Mapping[str, Any]:
    """Return the value if it is a mapping, otherwise an empty mapping."""
    return value if isinstance(value, Mapping) else {}


def listed(value: object) -> list[Any]:
    """Return the value if it is a list, otherwise an empty list."""
    return value if isinstance(value, list) else []
