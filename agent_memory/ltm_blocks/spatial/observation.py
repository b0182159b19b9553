"""Observations, their records, and search results. Validation of positions and numbers."""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import nan
from numbers import Real
from typing import Any, NamedTuple

from agent_memory.core.limits import quoted
from agent_memory.core.records import Record
from agent_memory.errors import InvalidInput

Position = tuple[float, ...]

MOST = 1e12
"""Maximum absolute value of a coordinate, up to which distances stay precise."""

_UNITS = {"day": timedelta(days=1), "hour": timedelta(hours=1), "minute": timedelta(minutes=1)}


class Fading(NamedTuple):
    """The settings by which confidence decays."""

    half_life: float | None  # in seconds; None for no decay
    least: float  # the minimum confidence of search results


class Moment(NamedTuple):
    """The time of a search."""

    seconds: float  # the time as a Unix timestamp
    past: bool  # whether observations after this time are left out


@dataclass(frozen=True, slots=True)
class Observation:
    """An observation at a place.

    Attributes:
        position: x and y, or x, y and z, in a unit of your choice.
        at: The time of the observation (UTC).
        confidence: The original confidence, 0 to 1.
        session_id: The session in which the observation was made; empty outside a session.
        metadata: The writer's own metadata.
    """

    id: str
    text: str
    position: Position
    at: datetime
    confidence: float
    session_id: str
    metadata: dict[str, Any]


@dataclass(frozen=True, slots=True)
class SpatialMatch:
    """An observation found by a search.

    Attributes:
        distance: Distance from the position of the search; None if the search has no position.
        confidence: The observation's confidence at the time of the search.
        relevance: The probability that the text is about the query; None without a query.
        score: The ranking score; see `SpatialHandle`.
    """

    observation: Observation
    distance: float | None
    confidence: float
    relevance: float | None
    score: float


def record_of(item: Observation, owner: str) -> Record:
    fields = {"position": list(item.position), "confidence": item.confidence}
    fields |= {"metadata": item.metadata} if item.metadata else {}
    return Record(item.id, owner, item.session_id, 0, 0, item.text, (), item.at, fields)


def observation_of(record: Record) -> Observation:
    """Return the observation of a record, with a copy of the metadata that callers may change."""
    fields = record.metadata
    return Observation(
        id=record.id,
        text=record.text,
        position=tuple(fields["position"]),
        at=record.created_at,
        confidence=fields["confidence"],
        session_id=record.session_id,
        metadata=deepcopy(fields.get("metadata", {})),
    )


def position_of(value: object, dimensions: int, name: str = "position") -> Position:
    """Validate a position or the corner of a box."""
    if not isinstance(value, Iterable) or isinstance(value, str | bytes):
        raise InvalidInput(f"{name} is {quoted(value)}. Give {dimensions} numbers.")
    numbers = list(value)
    if len(numbers) != dimensions:
        raise InvalidInput(
            f"{name} has {len(numbers)} coordinates. This memory has {dimensions} dimensions. Give "
            "one number for each dimension."
        )
    coordinates = (number_of(f"{name}[{at}]", x, -MOST, MOST) for at, x in enumerate(numbers))
    return tuple(number + 0.0 for number in coordinates)  # -0.0 becomes 0.0


def number_of(name: str, value: object, least: float, most: float) -> float:
    """Validate a number of any type, such as numpy's, and return it as a float."""
    try:
        number = float(value) if isinstance(value, Real) else nan
    except OverflowError:
        number = nan
    if not least <= number <= most:
        raise InvalidInput(f"{name} is {quoted(value)}. Give a number from {least:g} to {most:g}.")
    return number


def rendered(match: SpatialMatch, now: datetime) -> str:
    """Return a match in words: "red door (at 3, 4.5; 12 days ago; confidence 0.63)"."""
    observation = match.observation
    where = ", ".join(f"{number:.10g}" for number in observation.position)
    sure = f"confidence {match.confidence:.2f}"
    return f"{observation.text} (at {where}; {ago(now - observation.at)}; {sure})"


def ago(age: timedelta) -> str:
    """Return an age in words: "12 days ago"."""
    for name, unit in _UNITS.items():
        if age >= unit:
            return f"{age // unit} {name}{'s' if age // unit > 1 else ''} ago"
    return "just now"
