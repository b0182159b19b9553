"""Immutable values that stores, blocks and the engine exchange: entries, heads, recalls etc."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

from agent_memory.core.limits import readable
from agent_memory.core.messages import Message
from agent_memory.core.timestamps import now_utc
from agent_memory.core.usage import Usage

Source = tuple[str, int]
"""The source message of a recall: (session_id, seq)."""


class Span(NamedTuple):
    """The entries of a session's log from seq `first` to seq `last`, both included."""

    session_id: str
    first: int
    last: int

    def holds(self, session_id: str, seq: int) -> bool:
        """Return whether the entry `seq` of a session lies in the range."""
        return session_id == self.session_id and self.first <= seq <= self.last


@dataclass(frozen=True, slots=True)
class Entry:
    """A message at its place in a session's log.

    Attributes:
        session_id: The session.
        seq: The sequence number, from 1 without gaps.
        message: The message.
        tokens: Tokens of the message in a context, counted when it was appended.
        total: Tokens of all entries up to and including this entry, without system messages. The
            tokens of a range of the log are the difference of two totals.
        encoding: Name of the token encoding that counted the message.
        created_at: The time of the message (UTC).
    """

    session_id: str
    seq: int
    message: Message
    tokens: int
    total: int
    encoding: str
    created_at: datetime

    @property
    def local_time(self) -> datetime:
        """Return the time of the message in its original time zone."""
        zone = self.message.created_at.tzinfo
        return self.created_at if zone is UTC else self.created_at.astimezone(zone)

    @property
    def counted(self) -> int:
        """Return the tokens that the entry adds to `total`: 0 for a system message."""
        return 0 if self.message.is_system else self.tokens

    @property
    def before(self) -> int:
        """Return `total` before the entry."""
        return self.total - self.counted


@dataclass(frozen=True, slots=True)
class Draft:
    """A message to append, with its token count.

    Attributes:
        message: The message. If it is a system message, it also becomes the head's `system`.
        tokens: Tokens of the message in a context.
        encoding: Name of the token encoding that counted the message.
    """

    message: Message
    tokens: int
    encoding: str


@dataclass(frozen=True, slots=True)
class Summary:
    """The summary of the entries that left the window.

    Attributes:
        text: The summary.
        tokens: Tokens of the summary in a context.
        upto: The last seq that the summary covers.
        by: The model that wrote it, or "local" for an extractive fallback.
        redo_after: For a fallback, the seq after which a model still has to summarise. None if the
            summary is final.
        redo_text: For a fallback, the last final summary. The model continues from that summary.
    """

    text: str
    tokens: int
    upto: int
    by: str
    redo_after: int | None = None
    redo_text: str | None = None


@dataclass(frozen=True)  # without slots: each append copies a head, and copying a dict is fast
class Head:
    """The state of a session besides its log.

    Attributes:
        session_id: The session.
        user_id: The owner. None until a call names a user.
        end: Seq of the newest entry. 0 for none.
        total: `Entry.total` of the newest entry.
        expired: Seq of the last entry that was deleted because it was older than `retention`. 0 for
            a complete log. A log with entries has `expired` below `end`.
        start: The window holds the entries after this seq, and the pinned entries.
        start_total: `Entry.total` of the entry at `start`.
        pinned: Seqs at or before `start` that stay in the window.
        pinned_tokens: Tokens of the pinned entries.
        system: The session's system message.
        system_tokens: Tokens of the system message.
        summary: The summary of the entries that left the window.
        cursors: For each long-term block, the last seq that it absorbed (derived its records from).
        version: The number of changes of the head, for compare-and-swap. Appends do not count. 0
            for a head that is not stored.
        deleting: Whether a deletion has begun and must be finished.
        created_at: The time at which the session began (UTC).
        updated_at: The time of the newest message, or `created_at` if there is none (UTC). Set only
            in results of `AgentMemory.sessions` and `AgentMemory.head`.
        metadata: The session's metadata. Set only in results of these two methods.
    """

    session_id: str
    user_id: str | None
    end: int = 0
    total: int = 0
    expired: int = 0
    start: int = 0
    start_total: int = 0
    pinned: tuple[int, ...] = ()
    pinned_tokens: int = 0
    system: Message | None = None
    system_tokens: int = 0
    summary: Summary | None = None
    cursors: dict[str, int] = field(default_factory=dict)
    version: int = 0
    deleting: bool = False
    created_at: datetime = field(kw_only=True)
    updated_at: datetime | None = field(default=None, compare=False)
    metadata: dict[str, Any] = field(default_factory=dict, compare=False)

    def lag(self, block: str) -> int:
        """Return the number of messages that a block has not absorbed yet."""
        return self.end - self.cursors.get(block, 0)

    @property
    def window_tokens(self) -> int:
        """Return the tokens of the window's turns, without system message and summary."""
        return self.total - self.start_total + self.pinned_tokens


@dataclass(frozen=True, slots=True)
class Lag:
    """A session with messages that a block has not absorbed yet.

    Attributes:
        session_id: The session.
        after: The seq up to which the entries are absorbed or no longer exist.
        end: Seq of the newest entry.
        total: `Entry.total` of the newest entry.
        version: Version of the session's head.
        created_at: The time at which the session began (UTC).
    """

    session_id: str
    after: int
    end: int
    total: int
    version: int
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to work on a session, held by one worker at a time.

    Attributes:
        session_id: The session.
        owner: A random id that only this lease has.
    """

    session_id: str
    owner: str


@dataclass(frozen=True, slots=True)
class Scope:
    """The user and session that a call is about. The calling code sets them, never a model.

    Attributes:
        user_id: The user, or None for a session without a user.
        session_id: The current session. None for all sessions of the user.
        after: For a deletion, a seq. Only records with a later source message are deleted.
        lease: The lease that a block passes with each write to the session store. The store refuses
            the write of a stalled worker after another worker has taken the lease.
        shown: For a query, the messages that the window shows whole and that need no recall.
        only_session: For a query, whether to leave out records that derive only from other
            sessions.
        floor: For a query, the factor by which `min_relevance` is multiplied: 1 for a context, less
            for a search.
        pinned: For a query, the ids of records to recall in any case.
        key: The idempotency key of a tool call. A retry with the same key writes nothing again.
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

    @property
    def in_context(self) -> bool:
        """Return whether the query is for a context rather than a search."""
        return self.floor == 1

    def wants(self, sources: Sequence[Source]) -> bool:
        """Return whether a record with these sources may be recalled.

        The engine checks each recall. A block can check earlier, before it limits the number of
        its recalls.
        """
        if not sources:
            return True
        if self.only_session and all(name != self.session_id for name, _ in sources):
            return False
        return not self.shown.issuperset(sources)

    @property
    def is_somebodys(self) -> bool:
        """Return whether the scope names a user or a session. Otherwise it has only shared data."""
        return self.user_id is not None or self.session_id is not None

    @property
    def owner(self) -> str:
        """Return the key under which records are stored: the user's, or else the session's."""
        if self.user_id is not None:
            return f"user:{self.user_id}"
        return f"session:{self.session_id}"


@dataclass(frozen=True, slots=True)
class Record:
    """A record that a block stores in a fact or vector store.

    The defaults are for a record that derives from no message.

    Attributes:
        id: The id, derived from block, scope, session and seqs. A retry overwrites the record,
            because it derives the same id.
        owner: The value of `Scope.owner`.
        session_id: The session that the record derives from.
        first: First seq of the record's source entries.
        last: Last seq of the record's source entries.
        text: The text for a model.
        sources: Seqs within the session that hold the evidence.
        metadata: Any other data, as JSON.
        created_at: The time that the text refers to (UTC).
    """

    id: str
    owner: str
    session_id: str = ""
    first: int = 0
    last: int = 0
    text: str = ""
    sources: tuple[int, ...] = ()
    created_at: datetime = field(default_factory=now_utc)
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Hit:
    """A record that a search found.

    Attributes:
        record: The record.
        score: The score by which hits are ordered; see `retrieval.score`.
        relevance: The probability, from 0 to 1, that the record is relevant to the query.
        parts: The terms of the score, in the order of `retrieval.score.PARTS`.
        cosine: The cosine similarity with the query. 0 without a vector.
        words: The BM25 score for the words of the query.
        encoding: A function that returns the record's encoding, see `retrieval.vectors`, if any.
    """

    record: Record
    score: float
    relevance: float = 0.0
    parts: tuple[float, ...] = ()
    cosine: float = 0.0
    words: float = 0.0
    encoding: Callable[[], Any] | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Recall:
    """One record that a block recalls.

    Attributes:
        block: Name of the block.
        id: The record's id.
        text: The text for a model.
        score: The score by which the block orders recalls. A higher score is better.
        relevance: Probability that the record is relevant to the query, if the block reports it.
        views: The terms of the score by name, if the block reports them.
        tokens: Tokens of the text, set by the engine.
        created_at: The time that the text refers to (UTC), if known.
        time: The time as text, such as "2023-05" or "planned for 2023-07-03". If it is empty, the
            day of `created_at` is shown.
        sources: `(session_id, seq)` of the source messages.
        metadata: Any other data.
        entries: The source messages, if the search requested them.
        pinned: Whether the record is marked as important. Pinned recalls come first.
        turns: For a passage of several messages, the indexes in `text` at which the second and
            later messages begin.
        sentences: For a long text in a context, how near each sentence is to the query: a mean of
            cosines. If the text is too long, the context shows the nearest sentences.
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
    turns: tuple[int, ...] = ()
    sentences: tuple[float, ...] = field(default=(), compare=False, repr=False)

    @property
    def display_time(self) -> str:
        """Return the time as it is shown. Empty if no time is known."""
        return self.time or (self.created_at.date().isoformat() if self.created_at else "")

    def __str__(self) -> str:
        time = self.display_time
        return f"[{time}] {self.text}" if time else self.text


@dataclass(frozen=True, slots=True)
class Surplus:
    """A stored record that may be stale; see `User.surplus`.

    Attributes:
        recall: The record.
        why: "duplicate": another record says the same. "old": the record is older than the
            requested age. "expired": a fact is older than its category allows.
        of: For a duplicate, the record that says the same.
    """

    recall: Recall
    why: Literal["duplicate", "old", "expired"]
    of: Recall | None = None


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A record that a query considered but did not recall.

    Attributes:
        recall: The record.
        why: The reason, as the end of a sentence.
    """

    recall: Recall
    why: str


@dataclass(frozen=True, slots=True)
class Absorbed:
    """The result of one block's absorption of one session.

    Attributes:
        session_id: The session.
        block: Name of the block.
        first: First seq of the messages to absorb.
        last: Last seq that was absorbed, or `first - 1` if no message was absorbed.
        error: The reason why the block stopped early, or None.
        usage: The model calls that absorption made.
    """

    session_id: str
    block: str
    first: int
    last: int
    error: str | None = None
    usage: Usage = field(default=Usage(), compare=False)

    @property
    def cost(self) -> float | None:
        """Return the cost in US dollars. None if the price of a model is not known."""
        return self.usage.cost


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Messages that a block could not absorb in several attempts.

    The messages stay in the log. The block continues with later messages. `operations.retry` lets
    the block try again to absorb dead letters.

    Attributes:
        block: Name of the block.
        session_id: The session.
        first: Seq of the first message.
        last: Seq of the last message.
        attempts: The number of attempts.
        error: The error of the last attempt.
        since: The time of the first failure (UTC).
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
