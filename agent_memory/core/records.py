"""The values that pass between the parts: entries, heads, recalls and their kin. No behaviour."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, NamedTuple

from agent_memory.core.ids import readable
from agent_memory.core.messages import Message
from agent_memory.core.usage import Usage

Source = tuple[str, int]
"""Where a recall comes from: (session_id, seq)."""


class Span(NamedTuple):
    """A part of a session's log.

    Attributes:
        session_id: The session.
        first: Its first seq.
        last: Its last.
    """

    session_id: str
    first: int
    last: int

    def holds(self, session_id: str, seq: int) -> bool:
        """Whether an entry is in it."""
        return session_id == self.session_id and self.first <= seq <= self.last


@dataclass(frozen=True, slots=True)
class Entry:
    """A message at its place in a session's log.

    Attributes:
        session_id: The session.
        seq: Its place, counted from 1 without gaps.
        message: What was appended.
        tokens: What the message costs in a context, counted once when it was appended.
        total: Tokens of all entries up to and with this one, system messages left out, so that the
            size of any stretch of the log is a subtraction.
        encoding: Name of the token encoding that counted it.
        created_at: The message's own time (UTC).
    """

    session_id: str
    seq: int
    message: Message
    tokens: int
    total: int
    encoding: str
    created_at: datetime

    @property
    def counted(self) -> int:
        """What it adds to the running total: a system message nothing."""
        return 0 if self.message.is_system else self.tokens

    @property
    def before(self) -> int:
        """The running total before it."""
        return self.total - self.counted


@dataclass(frozen=True, slots=True)
class Draft:
    """A message about to be appended, with its token count.

    Attributes:
        message: The message; a system message becomes the head's `system` as it is here.
        tokens: What it costs in a context.
        encoding: Name of the token encoding that counted it.
        placed: Gives the message to write at a seq, where that depends on its place: whoever
            encrypts it binds it there. May be called again, should the place be taken.
    """

    message: Message
    tokens: int
    encoding: str
    placed: Callable[[int], Message] | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Summary:
    """What stands for everything that left the window.

    Attributes:
        text: The summary.
        tokens: Its cost in a context.
        upto: The last seq it covers.
        by: The model that wrote it, or "local" for the extractive stand-in.
        redo_after: For a stand-in, the seq after which a model still has to do the work; None when
            the summary is final.
        redo_text: For a stand-in, the last final summary, from which the redoing starts.
    """

    text: str
    tokens: int
    upto: int
    by: str
    redo_after: int | None = None
    redo_text: str | None = None


@dataclass(frozen=True)  # without slots: each append copies one, and a dict is copied at once
class Head:
    """The one small record per session; everything else follows from it and the log.

    Attributes:
        session_id: The session.
        user_id: Its owner, once one was named.
        end: Seq of the newest entry (0 for none).
        total: Running token total at the end.
        expired: The log holds the entries after this seq: those up to it were kept as long as
            `retention` says. 0 for a log that is whole; always below `end`.
        start: The window holds the entries after this seq, and the pinned ones.
        start_total: Running token total at the start.
        pinned: Seqs at or before the start that stay in the window.
        pinned_tokens: Their tokens.
        system: The session's system message.
        system_tokens: Its tokens.
        summary: What stands for the entries that left the window.
        cursors: For each long-term block, the seq up to which it has absorbed the session.
        version: Counts the changes of this record (appends excepted), for compare-and-swap.
        deleting: A deletion has begun and is to be finished.
        created_at: When the session began (UTC).
        updated_at: Time of its newest message, or when it began (UTC); told by `sessions` and
            `head`, else None.
        metadata: What it was described as; told by these too.
    """

    session_id: str
    user_id: str | None
    end: int
    total: int
    expired: int
    start: int
    start_total: int
    pinned: tuple[int, ...]
    pinned_tokens: int
    system: Message | None
    system_tokens: int
    summary: Summary | None
    cursors: dict[str, int]
    version: int
    deleting: bool
    created_at: datetime
    updated_at: datetime | None = field(default=None, compare=False)
    metadata: dict[str, Any] = field(default_factory=dict, compare=False)

    def lag(self, block: str) -> int:
        """How many of the session's messages a block has still to absorb."""
        return self.end - self.cursors.get(block, 0)

    @property
    def window_tokens(self) -> int:
        """Tokens of the window's turns (system message and summary not included)."""
        return self.total - self.start_total + self.pinned_tokens


@dataclass(frozen=True, slots=True)
class Lag:
    """A session of whose log a block has something still to absorb.

    Attributes:
        session_id: The session.
        after: The block has absorbed the session up to this seq, or the log has no more before it.
        end: Seq of the newest entry.
        total: Running token total at the end.
        version: Of the session's head.
        created_at: When the session began (UTC).
    """

    session_id: str
    after: int
    end: int
    total: int
    version: int
    created_at: datetime


def empty_head(session_id: str, user_id: str | None, created_at: datetime) -> Head:
    """The head of a session that has no entries yet; version 0 says that it is not stored."""
    return Head(
        session_id=session_id,
        user_id=user_id,
        end=0,
        total=0,
        expired=0,
        start=0,
        start_total=0,
        pinned=(),
        pinned_tokens=0,
        system=None,
        system_tokens=0,
        summary=None,
        cursors={},
        version=0,
        deleting=False,
        created_at=created_at,
    )


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to work on a session, held by one worker at a time.

    Attributes:
        session_id: The session.
        owner: Names one holding of it; no two holdings have the same.
    """

    session_id: str
    owner: str


@dataclass(frozen=True, slots=True)
class Scope:
    """Whose memory, and which part of it. Bound by the caller, never by a model.

    Attributes:
        user_id: The user, or None where the session is its own scope.
        session_id: The session at hand; None means all of the user's.
        after: In a deletion, only what derives from entries after this seq.
        lease: What a block hands on with each write to the session store, so that a worker that
            stalled can't write any more once another has taken the session over.
        shown: In a question, the messages that a window shows as they are: to recall them is no
            use.
        only_session: In a question, that only what comes from the session is wanted, and what comes
            from none.
        floor: In a question, the share of `min_relevance` that recalls need: 1 in a context, 0 for
            all that was asked for, however little it has to do with the question.
        pinned: In a question, the ids of what is to be recalled in any case.
        key: Names what a tool was called for, where the caller may retry it: what writes, writes
            once for it.
    """

    user_id: str | None = None
    session_id: str | None = None
    after: int = 0
    lease: Lease | None = field(default=None, compare=False, repr=False)
    shown: frozenset[Source] = field(default=frozenset(), compare=False, repr=False)
    only_session: bool = field(default=False, compare=False)
    floor: float = field(default=1.0, compare=False)
    pinned: frozenset[str] = field(default=frozenset(), compare=False, repr=False)
    key: str | None = field(default=None, compare=False, repr=False)

    def wants(self, sources: Sequence[Source]) -> bool:
        """Whether what comes from these messages may be recalled.

        A block may ask, so that nothing takes the place of what is wanted; who asked it does, too.
        """
        if not sources:
            return True
        if self.only_session and all(name != self.session_id for name, _ in sources):
            return False
        return not self.shown.issuperset(sources)

    @property
    def is_somebodys(self) -> bool:
        """Whether it names anybody: else only what holds for everyone is in it."""
        return self.user_id is not None or self.session_id is not None

    @property
    def owner(self) -> str:
        """Key under which records are kept: a user's, or a session's own."""
        if self.user_id is not None:
            return f"user:{self.user_id}"
        return f"session:{self.session_id}"


@dataclass(frozen=True, slots=True)
class Record:
    """What a block keeps in a fact or vector store.

    Attributes:
        id: Derived from block, scope, session and seqs, so that a retry overwrites itself.
        owner: `Scope.owner` of whoever it belongs to.
        session_id: The session it derives from.
        first: First seq of the entries it was derived from.
        last: Last seq of those entries.
        text: What a model will read.
        sources: Seqs within the session that hold the evidence.
        metadata: Anything else, as JSON.
        created_at: Time of what it tells of (UTC).
    """

    id: str
    owner: str
    session_id: str
    first: int
    last: int
    text: str
    sources: tuple[int, ...]
    created_at: datetime
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Hit:
    """A record that a search by its features found.

    Attributes:
        record: The record.
        score: What hits are ordered by; see `retrieval.score`.
        relevance: The probability that it has to do with the question, from 0 to 1.
        parts: What the score is made of, in the order of `retrieval.score.PARTS`.
        cosine: Of its vector with the question's; 0 where it has none.
        words: What it has of the question's words (BM25).
    """

    record: Record
    score: float
    relevance: float = 0.0
    parts: tuple[float, ...] = ()
    cosine: float = 0.0
    words: float = 0.0


@dataclass(frozen=True, slots=True)
class Recall:
    """One thing a block brings back.

    Attributes:
        block: Name of the block.
        id: The record's id.
        text: What a model will read.
        score: What its block orders recalls by; higher is better.
        relevance: The probability that it has to do with the question, from 0 to 1, where its block
            tells.
        views: What the score is made of, by name, where the block tells.
        tokens: Cost of the text, filled in by the engine.
        created_at: Time of what it tells of (UTC), where known.
        time: How that is written, as "2023-05" or "planned for 2023-07-03"; the day where empty.
        sources: `(session_id, seq)` of the messages it comes from.
        metadata: Anything else.
        entries: The messages that it comes from, where a search was asked for them.
        pinned: Whether somebody called it important: it comes first.
    """

    block: str
    id: str
    text: str
    score: float = 0.0
    tokens: int = 0
    created_at: datetime | None = None
    sources: tuple[Source, ...] = ()
    metadata: dict[str, Any] = field(default_factory=dict)
    views: Mapping[str, float] = field(default_factory=dict)
    time: str = ""
    entries: tuple[Entry, ...] = field(default=(), repr=False)
    pinned: bool = False
    relevance: float | None = None

    @property
    def told_time(self) -> str:
        """Its time as it is shown; empty where none is known."""
        return self.time or (self.created_at.date().isoformat() if self.created_at else "")

    def __str__(self) -> str:
        time = self.told_time
        return f"[{time}] {self.text}" if time else self.text


@dataclass(frozen=True, slots=True)
class Surplus:
    """Something kept that may not be worth keeping; see `User.surplus`.

    Attributes:
        recall: What it is.
        why: "duplicate": another says the same. "old": its time is older than was asked. Of a fact
            also "expired": older than its category is given.
        of: For a duplicate, what says the same.
    """

    recall: Recall
    why: Literal["duplicate", "old", "expired"]
    of: Recall | None = None


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Something that was looked at for a question, and is not recalled.

    Attributes:
        recall: What it is.
        why: Why it is left out, as the end of a sentence.
    """

    recall: Recall
    why: str


@dataclass(frozen=True, slots=True)
class Absorbed:
    """What one `flush` did for one block and session.

    Attributes:
        session_id: The session.
        block: Name of the block.
        first: First seq absorbed now.
        last: Last seq absorbed now; `first - 1` where nothing could be.
        error: Why the block stopped short, or None.
        usage: What models were asked for it, by this call.
    """

    session_id: str
    block: str
    first: int
    last: int
    error: str | None = None
    usage: Usage = field(default=Usage(), compare=False)

    @property
    def cost(self) -> float | None:
        """US dollars; None where the price of a model is not known."""
        return self.usage.cost


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Messages that a block could not absorb, set aside after too many attempts.

    The log has them still; the block goes on with what comes after, and takes them when told to.

    Attributes:
        block: Name of the block.
        session_id: The session.
        first: Seq of the first message.
        last: Seq of the last.
        attempts: How often it was tried.
        error: Why it failed, the last time.
        since: When it first failed (UTC).
    """

    block: str
    session_id: str
    first: int
    last: int
    attempts: int
    error: str
    since: datetime

    def __str__(self) -> str:
        return (
            f"{self.block} gave up #{self.first} to #{self.last} of {readable(self.session_id)} "
            f"after {self.attempts} attempts: {self.error}"
        )
