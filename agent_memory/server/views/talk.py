"""What is answered about sessions, messages, contexts and what is recalled."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from agent_memory.server.paging import Next
from agent_memory.server.views.showing import shown

if TYPE_CHECKING:
    from agent_memory.core.context import MemoryContext
    from agent_memory.core.records import Entry, Head, Recall, Source


@dataclass(frozen=True, slots=True)
class Session:
    """A session: `messages` is the number of its newest message."""

    id: str
    messages: int
    tokens: int
    created_at: datetime
    updated_at: datetime | None
    metadata: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Sessions:
    """A page of sessions."""

    sessions: list[Session]
    next: Next = None


@dataclass(frozen=True, slots=True)
class End:
    """How far a session's log goes, after a write."""

    end: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Logged:
    """A message at its place in the log, as it was given."""

    seq: int
    message: dict[str, Any]
    tokens: int
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Log:
    """A page of a session's log."""

    messages: list[Logged]
    next: Next = None
    total: int | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """Where something was said."""

    session_id: str
    seq: int


@dataclass(frozen=True, slots=True)
class Recalled:
    """Something that is remembered."""

    block: str
    id: str
    text: str
    score: float
    time: str
    created_at: datetime | None
    sources: list[Place]


@dataclass(frozen=True, slots=True)
class Found:
    """What a search found, best first."""

    results: list[Recalled]


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Something that was looked at and not recalled."""

    recall: Recalled
    why: str


@dataclass(frozen=True, slots=True)
class Context:
    """What to send to a model, within the budget: `messages` are for any chat API."""

    messages: list[dict[str, Any]]
    recalls: list[Recalled]
    tokens: int
    max_tokens: int
    warnings: list[str]


@dataclass(frozen=True, slots=True)
class Explained:
    """What is recalled for a question, what is not, and why."""

    recalls: list[Recalled]
    left_out: list[LeftOut]
    warnings: list[str]


@dataclass(frozen=True, slots=True)
class Begun:
    """A turn that waits for its answer: `messages` are for the model; `asked` goes with the answer
    to after-turn.
    """

    messages: list[dict[str, Any]]
    asked: list[dict[str, Any]]
    tokens: int
    max_tokens: int
    warnings: list[str]


@dataclass(frozen=True, slots=True)
class Answered:
    """The answer of a model, whose turn is stored up to `end`."""

    message: dict[str, Any]
    end: int


def session(head: Head) -> Session:
    """A session, as its head tells it."""
    return shown(Session, head, id=head.session_id, messages=head.end, tokens=head.total)


def end(head: Head) -> End:
    """How far a log goes."""
    return End(head.end, head.total)


def logged(entry: Entry) -> Logged:
    """A message at its place."""
    return shown(Logged, entry, message=entry.message.to_dict())


def recalled(recall: Recall) -> Recalled:
    """Something that is remembered."""
    return shown(Recalled, recall, time=recall.told_time, sources=places(recall.sources))


def places(sources: tuple[Source, ...]) -> list[Place]:
    """Where it was said."""
    return [Place(*one) for one in sources]


def context(given: MemoryContext) -> Context:
    """What to send to a model."""
    messages, recalls = given.to_messages(), [recalled(one) for one in given.recalls]
    return shown(Context, given, messages=messages, recalls=recalls)
