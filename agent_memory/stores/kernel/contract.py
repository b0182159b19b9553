"""`Kernel`, the interface that each database implements. A kernel stores lines and documents.

A line is a message of a log. All other data is in documents: heads of sessions, idempotency keys,
locks, facts, vectors, segments and catalogs. `kernel.sessions` and `kernel.vectors` implement a
store's methods by calls of a kernel. Modules import this one as `k`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from agent_memory.errors import StoreError

LONGEST_LEASE_SECONDS = 120.0
"""The longest time of a lease or lock. Callers request less than half of this time.

A lease with more time left was set by a machine with a wrong clock, and is not valid.
"""


HEAD, KEY, LOCK, BLOCKS = "head", "key", "lock", "vectors"
"""The collections of heads, idempotency keys, locks, and registered embeddings of blocks."""

FACT, VECTOR, CATALOG, SEGMENT = "fact:", "vector:", "catalog:", "segment:"
"""Prefixes of the collections of a block. The block's name follows."""


class DocId(NamedTuple):
    """The key of a document in a namespace."""

    collection: str
    id: str


def head_id(session_id: str) -> DocId:
    return DocId(HEAD, session_id)


class Unreadable(str):
    """Replaces a body that a `KernelWrapper` cannot decode.

    Code that needs the body must raise the `error` of this object.
    """

    error: StoreError

    @classmethod
    def of(cls, error: StoreError) -> Unreadable:
        value = cls()
        value.error = error
        return value


class Line(NamedTuple):
    """An entry of a log as it is stored."""

    session: str
    seq: int  # the entry's number in the log
    role: str  # the message's role; empty for none
    text: str  # the message's text; if `body` is empty, the message has only this text and the role
    created_at: int  # the message's time, in microseconds since 1970 (UTC)
    tokens: int  # the message's tokens in a context
    total: int  # the log's running total of tokens, including this entry
    encoding: str  # the token encoding by which `tokens` were counted
    body: str  # the message as JSON, if it has more than a role and a text


class Tail(NamedTuple):
    """The last seq of a log, and the running total there; zeros for an empty log."""

    seq: int = 0
    total: int = 0


EMPTY = Tail()


class Document(NamedTuple):
    """A document. The database also stores its due time, and the holder and end of its lease.

    Attributes:
        id: The document's name in the collection.
        owner: The document's owner; empty for none.
        session: The session from which the document derives; empty for none.
        first: A number by which scans select and sort.
        last: A number by which scans select.
        version: A number that the writer sets. No two states of a document share a version.
        about: The part of the content that is returned even without bodies.
        body: Further content, as text.
        data: Further content, as bytes.
        tail: If requested, the end of the log of the session whose id is `id`.
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
        """The document's collection and id."""
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
    """The document exists. Its last lease was taken by this holder, and was not released."""

    id: DocId
    holder: str


class Free(NamedTuple):
    """The document is missing, or no other holder has a valid lease of the document.

    A lease that ends later than `LONGEST_LEASE_SECONDS` from now is not valid.
    """

    id: DocId
    holder: str


class LogEndsAt(NamedTuple):
    """The log's last seq is `seq`; 0 for an empty log."""

    session: str
    seq: int


Condition = Missing | Exists | VersionIs | HeldBy | Free | LogEndsAt


class Scan(NamedTuple):
    """Selects documents of a collection. A document must pass all filters that are set.

    Documents are in the order of their ids' code points. With a session, they are in the order of
    `first`, then id.
    """

    collection: str
    owner: str | None = None  # only documents of this owner; empty for documents without an owner
    # only documents that derive from this session; empty for those without a session
    session: str | None = None
    after: str = ""  # only documents with ids after this one
    limit: int | None = None  # the maximum number of documents to return
    first_below: int | None = None  # only documents with a lower `first`
    last_above: int | None = None  # only documents with a higher `last`
    tails: bool = False  # whether to set the `tail` of each document
    bodies: bool = True  # whether to return `body` and `data`
    names: bool = False  # whether to return only ids, from an index if the database has one
    # The name of a block. To save time, the database may leave out the heads of sessions that this
    # block has absorbed completely.
    behind: str = ""


class Append(NamedTuple):
    """Add lines to logs."""

    lines: Sequence[Line]


class Truncate(NamedTuple):
    """Remove the lines after a seq. `total` is the running total there, unless lines are added."""

    session: str
    after: int
    total: int = 0


class Expire(NamedTuple):
    """Remove the lines up to a seq."""

    session: str
    upto: int


class Put(NamedTuple):
    """Write a document. If a document with the id exists, its due time and lease stay."""

    document: Document


class Wake(NamedTuple):
    """Make documents due in `micros` microseconds, unless they are due sooner."""

    ids: Sequence[DocId]
    micros: int


class Due(NamedTuple):
    """Make a document due in `micros` microseconds; None for never."""

    id: DocId
    micros: int | None


class Hold(NamedTuple):
    """Lease a document to a holder for `micros` microseconds. An empty holder ends the lease."""

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
    """Writes, which are applied in order if all conditions hold."""

    conditions: Sequence[Condition]
    writes: Sequence[Write]
    tail: str = ""
    """A session. If the batch is applied, the outcome has the end of this session's log."""


class Outcome(NamedTuple):
    """The result of a batch."""

    done: bool  # whether the batch was applied
    # for a refused batch, the documents that its conditions name
    documents: dict[DocId, Document | None] = {}
    # For a refused batch, the ends of the logs that its conditions name. For an applied batch, the
    # end of the log of `Batch.tail`.
    tails: dict[str, Tail] = {}


DONE = Outcome(True)


class Part(NamedTuple):
    """Selects lines of a log: by `seqs`, or without `seqs` at most `limit` lines after `after`."""

    session: str
    after: int = 0
    limit: int | None = None
    seqs: Sequence[int] | None = None


class Kernel(Protocol):
    """One namespace of a database. Calls are safe from many threads and processes.

    Times in a batch are relative to now, by the kernel's clock. Every call may raise
    `StoreUnavailable`.

    Attributes:
        remote: Whether calls wait for a server.
        spans: Whether a batch may change several sessions.
    """

    remote: bool = False
    spans: bool = True

    def commit(self, batch: Batch) -> Outcome:
        """Apply a batch completely, or refuse it. An applied batch is durable on return.

        A batch may change one session (its head, log and keys), and other documents of any owners
        and collections. With `spans`, it may change several sessions. The batch's conditions (such
        as `Missing`) hold until its writes are done. A power loss may undo a batch that has only
        `Hold` and `Due`.

        Without `spans`, a condition about a document that the batch does not write is checked
        before the writes. Such a condition may no longer hold during the writes.
        """
        raise NotImplementedError

    def extend(self, head: DocId, version: int, line: Line, micros: int) -> bool:
        """Append a line if the head has this version and the line's seq is free; durable on return.

        Afterwards the head must be due within `micros` microseconds. If the head is not due by
        then, the kernel also sets its due time. A kernel that cannot do this in the same step
        returns False. False means that nothing was written. The caller then uses `commit`, whose
        outcome has the reason. A kernel may override this method to be faster. An override need
        only check that the seq is free, not that it directly follows the log's last seq: each
        truncation changes the head's version.
        """
        conditions = (VersionIs(head, version), LogEndsAt(line.session, line.seq - 1))
        return self.commit(Batch(conditions, (Append([line]), Wake([head], micros)))).done

    def documents(
        self, ids: Sequence[DocId], *, tails: bool = False, bodies: bool = True
    ) -> list[Document | None]:
        """Return documents in the order of `ids`; None for each missing document.

        Args:
            ids: The ids of the documents.
            tails: Whether to set each `tail`, as it was when the document was read.
            bodies: Whether to return `body` and `data`.
        """
        raise NotImplementedError

    def scan(self, scan: Scan) -> list[Document]:
        """Return the documents that a scan selects."""
        raise NotImplementedError

    def owners(self, collection: str, beginning: str) -> list[str]:
        """Return the owners in a collection that start with `beginning`, in code point order."""
        raise NotImplementedError

    def collections(self, beginning: str) -> list[str]:
        """Return non-empty collections that start with `beginning`, in code point order."""
        raise NotImplementedError

    def due(self, collection: str, limit: int) -> list[Document]:
        """Return due documents without a valid lease, each with its `tail`.

        Owners take turns: first each owner's document with the earliest due time, then each owner's
        second, and so on.
        """
        raise NotImplementedError

    def lines(self, parts: Sequence[Part]) -> list[Line]:
        """Return the lines that each part selects, in order of the parts, then of the seqs."""
        raise NotImplementedError

    def counts(self, collection: str) -> tuple[int, int]:
        """Return the number of documents in a collection, and the number of all lines."""
        raise NotImplementedError

    def erase(self) -> str | None:
        """Erase deleted data from the database's files, as far as possible.

        If the erasure is unfinished, return the reason.
        """
        return None

    def sync(self) -> None:
        """Wait until every acknowledged write survives a power loss. Does nothing on a server."""
        return

    def close(self) -> None:
        """Release connections. Idempotent."""
        return
