"""What others wrote as JSON, taken as far as it is what one looks for. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from agent_memory.core.moments import moment_said

Json = dict[str, Any]


def text_in(value: object) -> str | None:
    """A text that says something; None for all else."""
    return value if isinstance(value, str) and value.strip() else None


def moment(*said: object) -> datetime | None:
    """The first of these that tells a time: epoch seconds, or a text in ISO 8601."""
    for value in said:
        if isinstance(value, float) and not math.isfinite(value):
            continue
        if isinstance(value, datetime):
            return value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        if (found := moment_said(value)) is not None:
            return found
    return None


def dated(message: Json, at: datetime | None) -> Json:
    """A message with its time, where that is known."""
    return message if at is None else {**message, "created_at": at}


def mapping(value: object) -> Mapping[str, Any]:
    """A mapping; an empty one for all else."""
    return value if isinstance(value, Mapping) else {}


def listed(value: object) -> list[Any]:
    """A list; an empty one for all else."""
    return value if isinstance(value, list) else []
