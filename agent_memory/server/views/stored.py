"""What is answered about notes, files, skills and places."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from agent_memory.server.paging import Next


@dataclass(frozen=True, slots=True)
class Note:
    """A note. Its `version` is what If-Match takes."""

    id: str
    text: str
    created_at: datetime
    session_id: str
    metadata: dict[str, Any]
    version: str


@dataclass(frozen=True, slots=True)
class Notes:
    """A page of notes, oldest first."""

    notes: list[Note]
    total: int
    next: Next = None


@dataclass(frozen=True, slots=True)
class File:
    """A file. Its `version` is what If-Match takes."""

    path: str
    text: str
    version: str


@dataclass(frozen=True, slots=True)
class Files:
    """The paths of a page of files, in order."""

    paths: list[str]
    total: int
    next: Next = None


@dataclass(frozen=True, slots=True)
class Skill:
    """A procedure; a `shared` one is everybody's."""

    name: str
    description: str
    steps: list[str]
    tags: list[str]
    body: str
    shared: bool


@dataclass(frozen=True, slots=True)
class Skills:
    """A page of skills, by name."""

    skills: list[Skill]
    total: int
    next: Next = None


@dataclass(frozen=True, slots=True)
class Observation:
    """Something that was observed at a place."""

    id: str
    text: str
    position: list[float]
    at: datetime
    confidence: float
    session_id: str
    metadata: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Observations:
    """A page of observations, oldest first."""

    observations: list[Observation]
    total: int
    next: Next = None


@dataclass(frozen=True, slots=True)
class Near:
    """An observation that a search found."""

    observation: Observation
    distance: float | None
    confidence: float
    relevance: float | None
    score: float


@dataclass(frozen=True, slots=True)
class NearBy:
    """What is near, best first."""

    results: list[Near]
