"""What is answered about sessions, messages, contexts and what is recalled."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from agent_memory.server.paging import Next
from agent_memory.server.views.showing import shown
from agent_memory.server.views.upkeep import DeadLetter

if TYPE_CHECKING:
    from agent_memory.core.context import MemoryContext
    from agent_memory.core.explanation import Explanation
    from agent_memory.core.records import Entry, Head, Recall, Source
    from agent_memory.core.records import LeftOut as CoreLeftOut
    from agent_memory.core.sent import SentContext as Sent


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
    """Something that is remembered. `signals` are what its score is made of, by name, where its
    block tells.
    """

    block: str
    id: str
    text: str
    score: float
    time: str
    created_at: datetime | None
    sources: list[Place]
    tokens: int
    signals: dict[str, float]


@dataclass(frozen=True, slots=True)
class Found:
    """What a search found, best first."""

    results: list[Recalled]


@dataclass(frozen=True, slots=True)
class Searched(Found):
    """What a search found, best first, and which blocks could not be asked."""

    warnings: list[str]


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
class SentContext:
    """What a model was sent for the turn that begins with message `turn`.

    `window` has the numbers of the messages that it shows, `shortened` those shown in part.
    `kept_tokens` of its first ones are the same as the time before. `exact`: `messages` is what was
    sent, to the byte; else something of it was changed or deleted since, `missing` parts of it.
    """

    turn: int
    question: str
    at: datetime
    messages: list[dict[str, Any]]
    recalls: list[Recalled]
    left_out: list[LeftOut]
    window: list[int]
    shortened: list[int]
    tokens: int
    max_tokens: int
    kept_tokens: int | None
    cost: float | None
    exact: bool
    missing: int
    warnings: list[str]


@dataclass(frozen=True, slots=True)
class SentContexts:
    """A page of what models were sent."""

    contexts: list[SentContext]
    next: Next = None


@dataclass(frozen=True, slots=True)
class Explained:
    """What is recalled for a question, what is not, and why; `messages` are what a model would be
    sent now.
    """

    recalls: list[Recalled]
    left_out: list[LeftOut]
    given_up: list[DeadLetter]
    messages: list[dict[str, Any]]
    tokens: int
    max_tokens: int
    warnings: list[str]


@dataclass(frozen=True, slots=True)
class SummaryText:
    """What stands for the messages up to `upto` that left a window; made by `by`."""

    text: str
    tokens: int
    upto: int
    by: str


@dataclass(frozen=True, slots=True)
class Window:
    """What of a log is in the window: the messages after `start`, up to `end`, and `pinned` ones.

    Those up to `expired` the log has no more. `lag` tells how many of the session's messages each
    block has still to absorb.
    """

    start: int
    end: int
    expired: int
    pinned: list[int]
    system: dict[str, Any] | None
    summary: SummaryText | None
    tokens: int
    max_tokens: int
    lag: dict[str, int]


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
    sources, signals = places(recall.sources), dict(recall.views)
    return shown(Recalled, recall, time=recall.told_time, sources=sources, signals=signals)


def left_out(found: Iterable[CoreLeftOut]) -> list[LeftOut]:
    """What is not recalled, and why."""
    return [LeftOut(recalled(one.recall), one.why) for one in found]


def places(sources: tuple[Source, ...]) -> list[Place]:
    """Where it was said."""
    return [Place(*one) for one in sources]


def sent_context(given: Sent) -> SentContext:
    """What a model was sent."""
    context = given.context
    return shown(
        SentContext,
        given,
        recalls=[recalled(one) for one in context.recalls],
        left_out=left_out(given.left_out),
        window=list(given.window),
        shortened=list(given.shortened),
        tokens=context.tokens,
        max_tokens=context.max_tokens,
        kept_tokens=context.kept_tokens,
        warnings=context.warnings,
    )


def explained(given: Explanation) -> Explained:
    """What would be sent now."""
    return shown(
        Explained,
        given.context,
        recalls=[recalled(one) for one in given.recalls],
        left_out=left_out(given.left_out),
        given_up=[shown(DeadLetter, one) for one in given.dead_letters],
        messages=given.context.to_messages(),
        warnings=given.warnings,
    )


def window(head: Head, max_tokens: int, blocks: Iterable[str]) -> Window:
    """What of a session's log is in its window."""
    return shown(
        Window,
        head,
        pinned=list(head.pinned),
        system=None if head.system is None else head.system.to_dict(),
        summary=None if head.summary is None else shown(SummaryText, head.summary),
        tokens=head.window_tokens,
        max_tokens=max_tokens,
        lag={name: head.lag(name) for name in blocks},
    )


def context(given: MemoryContext) -> Context:
    """What to send to a model."""
    messages, recalls = given.to_messages(), [recalled(one) for one in given.recalls]
    return shown(Context, given, messages=messages, recalls=recalls)
