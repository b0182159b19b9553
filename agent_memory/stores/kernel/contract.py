"""The kernel: the interface that a database implements. It stores lines of logs and documents, and
commits batches of conditions and writes.

All data but messages is in documents: heads of sessions, idempotency keys, locks, facts, vectors,
segments and catalogs. `kernel.sessions`, `kernel.records` and `kernel.vectors` build on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from agent_memory.errors import StoreError

LONGEST_LEASE_SECONDS = 120.0
"""The longest time of a lease or lock. Callers request less than half of it.

A lease with more time left is of a machine with a wrong clock. It may be taken over.
"""


class DocId(NamedTuple):
    """Names a document."""

    collection: str
    id: str


class Unreadable(str):
    """Replaces a body that a wrapper of a kernel cannot decode.

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
        seq: Its number in the log.
        role: The message's role; empty for none.
        text: The message's text; the whole message if `body` is empty.
        created_at: Its time, in microseconds since 1970 (UTC).
        tokens: Its tokens in a context.
        total: The running total of tokens.
        encoding: The token encoding with which it was counted.
        body: The message as JSON, if it has more than a role and a text.
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
    """A document. The database also stores its holder, the end of its lease, and its due time.

    Attributes:
        id: Its name in the collection.
        owner: Its owner; empty for none.
        session: The session that it derives from; empty for none.
        first: A number to select and sort by.
        last: Another number to select by.
        version: Set by the writer. It must differ between all states of the same id.
        about: The part that scans without bodies return.
        body: The rest, as text.
        data: The rest, as bytes.
        tail: The end of the log of session `id`, if requested.
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
        """Its id."""
        return DocId(self.collection, self.id)


class Missing(NamedTuple):
    """The document does not exist."""

    id: DocId


class Exists(NamedTuple):
    """The document exists."""

    id: DocId


class VersionIs(NamedTuple):
    """The document exists and has this version."""

    id: DocId
    version: int


class HeldBy(NamedTuple):
    """The document exists, and this holder took it last and has not released it."""

    id: DocId
    holder: str


class Free(NamedTuple):
    """The document is missing, or this holder may take it: nobody else holds it, or another's lease
    has ended, or ends later than `LONGEST_LEASE_SECONDS` from now."""

    id: DocId
    holder: str


class LogEndsAt(NamedTuple):
    """The log's last seq is `seq`; 0 for an empty log."""

    session: str
    seq: int


OfDocument = Missing | Exists | VersionIs | HeldBy | Free
Condition = OfDocument | LogEndsAt


class Scan(NamedTuple):
    """Selects documents of a collection. Filters combine.

    Attributes:
        owner: Only documents of this owner; empty for those without one.
        session: Only documents that derive from this session, in order of `first`, then id; empty
            for those without one. With None the order is the id's code points.
        after: Only ids after this one.
        limit: The most documents.
        first_below: Only documents with `first` below it.
        last_above: Only documents with `last` above it.
        tails: Whether to add the ends of the logs of the sessions with these ids.
        bodies: Whether to return `body` and `data`.
        names: Whether to return ids alone, from indexes if the database can.
        behind: Leave out the heads that this block has absorbed to the end. It only saves time:
            a database may return them.
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
    """Write a document, replacing one with its id, whose due time and lease stay."""

    document: Document


class Wake(NamedTuple):
    """Make documents due in this many microseconds, unless they are due sooner."""

    ids: Sequence[DocId]
    micros: int


class Due(NamedTuple):
    """Make a document due in this many microseconds; None for never."""

    id: DocId
    micros: int | None


class Hold(NamedTuple):
    """Let a holder hold a document for this many microseconds; an empty holder releases it."""

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
    """The session whose log's end the outcome contains."""


class Outcome(NamedTuple):
    """Whether a batch was applied. The outcome of a refused one has the documents and the ends of
    logs that its conditions name."""

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
    """The base of a database for one namespace; safe to use from many threads and processes.

    The kernel has the clock: a batch has offsets from now. Every call may raise `StoreUnavailable`.

    Attributes:
        remote: Whether calls wait for a server.
        most_bytes: The largest size of `data`; None for any size.
        spans: Whether a batch may change several sessions, and whether `commit` is one transaction.
    """

    remote: bool = False
    most_bytes: int | None = None
    spans: bool = True

    def commit(self, batches: Sequence[Batch]) -> list[Outcome]:
        """Commit batches in order, durable on return.

        Each batch is applied completely or refused. It changes at most one session (head, log and
        keys), and any other documents of several owners and collections. Its conditions, including
        those about missing documents, hold until its writes are done. A power loss may undo a batch
        that has only `Hold` and `Due`.

        With `spans`, a batch may change several sessions, and all batches are one transaction.
        Without it, a condition about a document that the batch does not write is checked before
        the writes, and may no longer hold during them.
        """

    def extend(self, head: DocId, version: int, line: Line, micros: int) -> bool:
        """Append a line if the head has this version and the line's seq is free; durable on return.

        The head must be due within `micros`, or the kernel makes it due. False means that nothing
        was written; `commit` returns why. Each truncation of a log changes the head's version, so a
        free seq after the known end is the log's end. A kernel overrides this to be faster.
        """
        conditions = (VersionIs(head, version), LogEndsAt(line.session, line.seq - 1))
        return self.commit([Batch(conditions, (Append([line]), Wake([head], micros)))])[0].done

    def documents(
        self, ids: Sequence[DocId], *, tails: bool = False, bodies: bool = True
    ) -> list[Document | None]:
        """Return documents in the order of `ids`.

        Args:
            ids: Their ids.
            tails: Whether to add the ends of their logs, from the same state.
            bodies: Whether to return `body` and `data`.
        """

    def scan(self, scan: Scan) -> list[Document]:
        """Return the documents that a scan selects."""

    def owners(self, collection: str, beginning: str) -> list[str]:
        """Return the distinct owners in a collection with a prefix, in code point order."""

    def collections(self, beginning: str) -> list[str]:
        """Return the collections with a prefix, in code point order."""

    def due(self, collection: str, limit: int) -> list[Document]:
        """Return documents that are due and that nobody holds, with the ends of their logs.

        Owners take turns: first each owner's longest due document, then each one's second.
        """

    def lines(self, parts: Sequence[Part]) -> list[Line]:
        """Return the lines of parts of logs, each part in order of seq."""

    def counts(self, collection: str) -> tuple[int, int]:
        """Return the number of documents in a collection, and the number of all lines."""

    def erase(self) -> None:
        """Erase deleted data from the database's files, as far as possible."""
        return

    def sync(self) -> None:
        """Wait until every acknowledged write survives a power loss, if the kernel decides that."""
        return

    def close(self) -> None:
        """Release connections. Idempotent."""
        return
