"""Lenient access to other programs' JSON. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from agent_memory.core.timestamps import moment_said

Json = dict[str, Any]


def text_in(value: object) -> str | None:
    """Return a non-blank text; None for other values."""
    return value if isinstance(value, str) and value.strip() else None


def moment(*said: object) -> datetime | None:
    """Return the first of these that is a time: a datetime, epoch seconds or milliseconds, or a
    text in ISO 8601. Times without a zone are UTC.
    """
    for value in said:
        if isinstance(value, float) and not math.isfinite(value):
            continue
        if isinstance(value, datetime):
            return value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        if (found := moment_said(value)) is not None:
            return found
    return None


def dated(message: Json, at: datetime | None) -> Json:
    """Return a message with its time, if known."""
    return message if at is None else {**message, "created_at": at}


def mapping(value: object) -> Mapping[str, Any]:
    """Return a mapping; an empty one for other values."""
    return value if isinstance(value, Mapping) else {}


def listed(value: object) -> list[Any]:
    """Return a list; an empty one for other values."""
    return value if isinstance(value, list) else []
