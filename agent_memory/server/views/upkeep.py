"""What is answered about deletions, what waits, what was spent, and shares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from agent_memory.server.paging import Next
from agent_memory.server.views.showing import shown

if TYPE_CHECKING:
    from agent_memory.core.receipts import Receipt as CoreReceipt
    from agent_memory.core.records import Absorbed as CoreAbsorbed
    from agent_memory.engine.spending import Today as CoreToday
    from agent_memory.engine.stats import Counted


@dataclass(frozen=True, slots=True)
class ReceiptPart:
    """What became of one place."""

    place: str
    state: str
    why: str


@dataclass(frozen=True, slots=True)
class Receipt:
    """What was deleted, or how far a log is durable. Keep it whole: it can be verified later."""

    kind: str
    id: str
    namespace: str
    at: datetime
    parts: list[ReceiptPart]
    end: int = 0
    digest: str = ""
    signature: str | None = None


@dataclass(frozen=True, slots=True)
class Work:
    """What was absorbed of one session for one block."""

    session_id: str
    block: str
    first: int
    last: int
    error: str | None


@dataclass(frozen=True, slots=True)
class Absorbed:
    """What was absorbed."""

    absorbed: list[Work]


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Messages that a block gave up."""

    block: str
    session_id: str
    first: int
    last: int
    attempts: int
    error: str
    since: datetime


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """A page of dead letters."""

    dead_letters: list[DeadLetter]
    total: int
    next: Next = None


@dataclass(frozen=True, slots=True)
class BlockState:
    """How a block stands."""

    lag: int
    dead_letters: int
    failing: bool


@dataclass(frozen=True, slots=True)
class Spent:
    """Model calls, their tokens, and US dollars: null where a price is unknown."""

    calls: int
    failures: int
    prompt_tokens: int
    completion_tokens: int
    cost: float | None
    embedding_calls: int
    embedding_tokens: int


@dataclass(frozen=True, slots=True)
class Stats:
    """How the memory stands; `usage` is of this process."""

    sessions: int
    messages: int
    blocks: dict[str, BlockState]
    usage: Spent


@dataclass(frozen=True, slots=True)
class Today:
    """What memory spent on a day (UTC) of its own accord, where that is limited; `reached` says
    which limit has no room for another call.
    """

    day: str
    calls: int
    tokens: int
    cost: float
    reached: str | None


@dataclass(frozen=True, slots=True)
class Spending:
    """What models were asked for, by purpose, and how that was of use: by all processes, since the
    store was made.

    Of the `prompt_tokens` of contexts `kept_tokens` were the same as the time before. Of so many
    times that something was looked for (`recalls`) nothing was found in `empty_recalls`.
    """

    purposes: dict[str, Spent]
    today: Today | None
    prompt_tokens: int
    kept_tokens: int
    recalls: int
    empty_recalls: int


@dataclass(frozen=True, slots=True)
class UserSize:
    """A user, and how much was said."""

    id: str
    sessions: int
    messages: int


@dataclass(frozen=True, slots=True)
class Users:
    """A page of users, by id."""

    users: list[UserSize]
    total: int
    next: Next = None


@dataclass(frozen=True, slots=True)
class Me:
    """The credential that asks: what it is called, for which users it is, and what it may do.

    `blocks` are the kinds of those that the service has, by name; `keeps_contexts` says whether
    what models are sent is kept.
    """

    name: str
    label: str
    users: list[str]
    rights: list[str]
    blocks: dict[str, str]
    keeps_contexts: bool


@dataclass(frozen=True, slots=True)
class Shares:
    """The names of shared namespaces."""

    shares: list[str]


@dataclass(frozen=True, slots=True)
class Agents:
    """Which agents have access to a shared namespace, and which."""

    agents: dict[str, str] = field(default_factory=dict)


def receipt(given: CoreReceipt) -> Receipt:
    """A receipt."""
    return shown(Receipt, given, parts=[shown(ReceiptPart, part) for part in given.parts])


def spending(counted: Counted, today: CoreToday | None) -> Spending:
    """What was spent."""
    spent = (
        None if today is None else shown(Today, today.spent, day=today.day, reached=today.reached)
    )
    return Spending(
        {purpose: shown(Spent, usage) for purpose, usage in counted.usage.items()},
        spent,
        counted.prompts.tokens,
        counted.prompts.kept_tokens,
        counted.recalls.asked,
        counted.recalls.empty,
    )


def absorbed(done: Sequence[CoreAbsorbed]) -> Absorbed:
    """What was absorbed."""
    return Absorbed([shown(Work, one) for one in done])
