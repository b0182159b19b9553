"""The kernel: what a database must do. It stores entries of logs and documents, and commits
batches of conditions and writes.

Everything but messages is a document: heads of sessions, idempotency keys, locks, facts, vectors,
segments and catalogs. `kernel.sessions`, `kernel.records` and `kernel.vectors` are the store above.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from agent_memory.errors import StoreError


class DocId(NamedTuple):
    """Names a document."""

    collection: str
    id: str


class Unreadable(str):
    """Stands in place of a body that a wrapper of a kernel cannot decode.

    Attributes:
        error: Raised by the call that decodes this body, and by no other.
    """

    error: StoreError

    @classmethod
    def of(cls, error: StoreError) -> Unreadable:
        """Return the value for an error."""
        value = cls()
        value.error = error
        return value


class Line(NamedTuple):
    """An entry of a log as it is stored.

    Attributes:
        session: The session.
        seq: Its number in the log.
        role: The message's role, empty where it has none.
        text: The message's text; all of the message where `body` is empty.
        created_at: When it was said, in microseconds since 1970 (UTC).
        tokens: Its cost in a context.
        total: The running total of tokens.
        encoding: The token encoding that counted it.
        body: The message as JSON, where it is more than a role and a text.
    """

    session: str
    seq: int
    role: str
    text: str
    created_at: int
    tokens: int
    total: int
    encoding: str
    body: str


class Tail(NamedTuple):
    """The end of a log; zeros for an empty one."""

    seq: int = 0
    total: int = 0


EMPTY = Tail()


class Document(NamedTuple):
    """A document. Beside it the database keeps until when it is held and when it is due.

    Attributes:
        collection: The collection.
        id: Its name in the collection.
        owner: Its owner; empty for none.
        session: The session that it derives from; empty for none.
        first: A number to select and sort by.
        last: Another number to select by.
        version: Chosen by the writer. No other state of the same id may ever have the same.
        about: The part that scans without bodies return.
        body: All else.
        data: Bytes.
        tail: The end of the log of session `id`, where that was asked for.
    """

    collection: str
    id: str
    owner: str = ""
    session: str = ""
    first: int = 0
    last: int = 0
    version: int = 0
    about: str = ""
    body: str = ""
    data: bytes = b""
    tail: Tail = EMPTY

    @property
    def key(self) -> DocId:
        """Its name."""
        return DocId(self.collection, self.id)


class Missing(NamedTuple):
    """There is no such document."""

    id: DocId


class Exists(NamedTuple):
    """The document is there."""

    id: DocId


class VersionIs(NamedTuple):
    """The document is there and has this version."""

    id: DocId
    version: int


class HeldBy(NamedTuple):
    """The document is there, and this holder was the last to take it and has not let go."""

    id: DocId
    holder: str


class Free(NamedTuple):
    """The document is missing, or this holder may take it: it is nobody's or the holder's own, or
    another's time has come, or ends later than `LONGEST_LEASE_SECONDS` from now."""

    id: DocId
    holder: str


class LogEndsAt(NamedTuple):
    """The log's last seq is this; 0 for an empty log."""

    session: str
    seq: int


OfDocument = Missing | Exists | VersionIs | HeldBy | Free
Condition = OfDocument | LogEndsAt


class Scan(NamedTuple):
    """Selects documents of a collection. Filters combine.

    Attributes:
        collection: The collection.
        owner: Only this owner's; empty for nobody's.
        session: Only those that derive from this session, in order of `first`, then id; empty for
            none. At None the order is the id's code points.
        after: Only ids after this one.
        limit: At most so many.
        first_below: Only those with `first` below it.
        last_above: Only those with `last` above it.
        tails: With the ends of the logs of the sessions that the ids name.
        bodies: False leaves out `body` and `data`.
        names: True returns ids alone, from indexes where the database can.
        behind: Leaves out the heads that this block has absorbed to the end. It saves reading them:
            a database may return them all the same.
    """

    collection: str
    owner: str | None = None
    session: str | None = None
    after: str = ""
    limit: int | None = None
    first_below: int | None = None
    last_above: int | None = None
    tails: bool = False
    bodies: bool = True
    names: bool = False
    behind: str = ""


class Append(NamedTuple):
    """Add lines to logs."""

    lines: Sequence[Line]


class Truncate(NamedTuple):
    """Remove the lines after a seq."""

    session: str
    after: int


class Expire(NamedTuple):
    """Remove the lines up to a seq."""

    session: str
    upto: int


class Put(NamedTuple):
    """Write a document over the one with its id, whose due time and holder stay."""

    document: Document


class Wake(NamedTuple):
    """Make documents due in so many microseconds, unless they are so sooner."""

    ids: Sequence[DocId]
    micros: int


class Due(NamedTuple):
    """Make a document due in so many microseconds; None: never."""

    id: DocId
    micros: int | None


class Hold(NamedTuple):
    """Have a document held for so many microseconds; an empty holder lets go of it."""

    id: DocId
    holder: str
    micros: int


class Delete(NamedTuple):
    """Remove documents."""

    ids: Sequence[DocId]


class DeleteWhere(NamedTuple):
    """Remove all documents that a scan selects."""

    scan: Scan


Write = Append | Truncate | Expire | Put | Wake | Due | Hold | Delete | DeleteWhere


class Batch(NamedTuple):
    """Conditions, and the writes to apply in their order if all conditions hold."""

    conditions: Sequence[Condition]
    writes: Sequence[Write]
    tail: str = ""
    """The session whose end of the log the outcome brings."""


class Outcome(NamedTuple):
    """Whether a batch was applied. A refused one brings the documents and the ends of logs that its
    conditions name."""

    done: bool
    documents: dict[DocId, Document | None] = {}
    tails: dict[str, Tail] = {}


DONE = Outcome(True)


class Part(NamedTuple):
    """Selects lines of one log: those with these seqs, or the first `limit` after a seq."""

    session: str
    after: int = 0
    limit: int | None = None
    seqs: Sequence[int] | None = None


class Kernel(Protocol):
    """A database for one namespace; safe to use from many threads and processes.

    Times are the kernel's: a batch gives offsets from now. Every call may raise `StoreUnavailable`.

    Attributes:
        remote: Whether calls wait for a server.
        most_bytes: How large `data` may be; None for any size.
        spans: Whether a batch may change several sessions, and whether `commit` is one transaction.
    """

    @property
    def remote(self) -> bool: ...
    @property
    def most_bytes(self) -> int | None: ...
    @property
    def spans(self) -> bool: ...

    def commit(self, batches: Sequence[Batch]) -> list[Outcome]:
        """Commit batches in order, durable on return.

        Each batch is applied whole or refused. It changes one session at most (head, log and keys)
        and any other documents, of several owners and collections. Its conditions hold until its
        writes are done, those about missing documents too. A power loss may undo a batch of nothing
        but `Hold` and `Due`.

        With `spans`, a batch may change several sessions, and all batches are one transaction.
        Without it, a condition about a document that the batch does not write is checked before
        the writes, and may cease to hold meanwhile.
        """
        ...

    def extend(self, head: DocId, version: int, line: Line, micros: int) -> bool:
        """Append a line to a log if the head has this version and is due within `micros`, and the
        line's seq is free; durable on return. False: nothing was written, `commit` says why.

        The fast path of an append. A log gets shorter only together with another version of its
        head, so a free seq that follows the known end is the log's end.
        """
        ...

    def documents(
        self, ids: Sequence[DocId], *, tails: bool = False, bodies: bool = True
    ) -> list[Document | None]:
        """Return documents in the order of `ids`.

        Args:
            ids: Their names.
            tails: With the ends of their logs, from the same state.
            bodies: False leaves out `body` and `data`.
        """
        ...

    def scan(self, scan: Scan) -> list[Document]:
        """Return the documents that a scan selects."""
        ...

    def owners(self, collection: str, beginning: str) -> list[str]:
        """Return the distinct owners in a collection whose names begin so, in code point order."""
        ...

    def collections(self, beginning: str) -> list[str]:
        """Return the collections whose names begin so, in code point order."""
        ...

    def due(self, collection: str, limit: int) -> list[Document]:
        """Return documents that are due and that nobody holds, with the ends of their logs.

        Owners take turns: each one's document that is due for longest, then each one's second.
        """
        ...

    def lines(self, parts: Sequence[Part]) -> list[Line]:
        """Return the lines of parts of logs, each part in order of seq."""
        ...

    def counts(self, collection: str) -> tuple[int, int]:
        """Return how many documents a collection has, and how many lines there are."""
        ...

    def erase(self) -> None:
        """Remove the bytes of deleted data from the database's files, as far as it can."""
        ...

    def sync(self) -> None:
        """Return once every acknowledged write survives a power loss, where the kernel decides."""
        ...

    def close(self) -> None:
        """Release connections. Idempotent."""
        ...
