"""What is answered about facts and their history."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from agent_memory.server.paging import Next


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a fact rests on, verbatim."""

    session_id: str
    seq: int
    quote: str
    role: str
    recorded_at: datetime


@dataclass(frozen=True, slots=True)
class Fact:
    """Something that was said to be so, with the time in which it was."""

    id: str
    block: str
    text: str
    subject: str
    category: str
    confidence: float
    role: str
    kind: str
    time: str
    valid_from: datetime | None
    valid_to: datetime | None
    recorded_at: datetime
    superseded_at: datetime | None
    superseded_by: str | None
    why: str
    field: str | None
    value: Any
    evidence: list[Evidence]


@dataclass(frozen=True, slots=True)
class Facts:
    """A page of facts, in the order in which they were said."""

    facts: list[Fact]
    total: int
    next: Next = None


@dataclass(frozen=True, slots=True)
class Forgotten:
    """The ids of the facts that are gone."""

    forgotten: list[str]


@dataclass(frozen=True, slots=True)
class Profile:
    """What the fields of the profile are filled with."""

    profile: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Change:
    """A change to what is known."""

    at: datetime
    what: str
    why: str
    block: str
    fact: str | None
    text: str
    evidence: Evidence | None
    session_id: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Audit:
    """A page of changes, oldest first."""

    changes: list[Change]
    total: int
    next: Next = None
