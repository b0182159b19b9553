"""What a store must do. Small on purpose: four kinds of database have to do it alike.

A store serves one namespace. Its methods are safe to call from many threads, and on a shared
database from many processes. Ids arrive checked; the engine decides, the store keeps.

What is not what was written concerns itself alone. A call for one session raises `Damaged`, with
what can be read of the head; calls that give what there is of many leave it out, see
`stores.damage`. Deleting reads nothing of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, TypeGuard

from agent_memory.core.once import Append, Appended
from agent_memory.core.protocols import offers
from agent_memory.core.records import Draft, Entry, Head, Hit, Lag, Lease, Record
from agent_memory.stores.once import OnceStore

if TYPE_CHECKING:
    from agent_memory.retrieval.features import Features
    from agent_memory.retrieval.query import Query


Durability = Literal["process", "power"]
"""What an acknowledged write survives: the end of the process, however sudden ("process"), or a
power loss too ("power"), at the price of a sync of the disk for each write."""

LONGEST_LEASE_SECONDS = 120.0
"""A lease or lock that ends later than this from now was taken under a wrong clock: it is not true,
and may be taken over. None is asked for half as long."""


@dataclass(frozen=True, slots=True)
class Counts:
    """How much a store holds in its namespace."""

    sessions: int
    entries: int


class SessionStore(OnceStore, Protocol):
    """The logs and heads of sessions."""

    @property
    def remote(self) -> bool:
        """Whether its calls wait for a server: then many are best made at the same time."""
        ...

    def append(
        self,
        session_id: str,
        drafts: Sequence[Draft],
        user_id: str | None = None,
        *,
        within: float = 0.0,
    ) -> Head:
        """Append all drafts or none, with consecutive seqs, and return the head after it.

        Creates the session if need be. The last draft that is a system message becomes the head's
        `system`. A `user_id` is set on a session that has none; doing so clears `cursors`, so that
        blocks absorb the session again under its user. Durable on return.

        A draft that has `placed` is written as that gives it for the entry's seq.

        The entry's `total` is the last entry's plus its tokens; a system message adds nothing.
        Appending bumps `version` only where it changed the system message or the user. It makes the
        session due in `within` seconds, unless it is so sooner; at the latest together with the
        entries.

        Raises:
            SessionOfAnotherUser: The session has another user.
            SessionDeleting: A deletion of the session has begun.
        """
        ...

    def head(self, session_id: str) -> Head | None:
        """The head, or None for a session that does not exist."""
        ...

    def existing(self, session_ids: Collection[str]) -> set[str]:
        """Those of the sessions that exist and whose deletion has not begun."""
        ...

    def read(self, session_id: str, *, after: int = 0, limit: int | None = None) -> list[Entry]:
        """Entries with seq above `after` that the log still has, in order, at most `limit`."""
        ...

    def pick(self, session_id: str, seqs: Sequence[int]) -> list[Entry]:
        """Those of the entries with these seqs that the log still has, in order."""
        ...

    def lagging(
        self, block: str, *, user_id: str | None = None, session_id: str | None = None
    ) -> list[Lag]:
        """The sessions that go on past a block's cursor, the one that began last first.

        Of one user, or the one session that is named. Those whose deletion has begun are left out.
        """
        ...

    def tails(
        self, block: str, session_ids: Collection[str], *, before: int, limit: int
    ) -> list[Entry]:
        """Of each of the sessions the entries past a block's cursor, in order.

        Args:
            block: Whose cursor.
            session_ids: The sessions.
            before: So many entries before the cursor too.
            limit: Of each session its newest, at most this many.
        """
        ...

    def move(self, head: Head, *, lease: Lease | None = None) -> Head | None:
        """Compare-and-swap: write `head` if the stored version still equals `head.version`.

        Writes expired, start, start_total, pinned, pinned_tokens, system, system_tokens, summary,
        cursors, user_id and deleting; `end` and `total` belong to the log. Entries with seq up to
        `expired`, which never goes back, are removed. A head that is `deleting` makes the session
        due. Returns the head as it is stored now (version one higher), or None where another writer
        came first.

        Raises:
            LeaseLost: `lease` is given and not held any more; nothing was written.
        """
        ...

    def rewrite(
        self,
        head: Head,
        after: int,
        entries: Sequence[Entry] = (),
        *,
        lease: Lease | None = None,
    ) -> Head | None:
        """In one transaction: `move(head)`, and have the log go on after seq `after` with these
        entries, in place of those that are there.

        A head of version 0 begins the session, with its `created_at`, and is due; None where there
        is one already. Keys of messages past the log's new end are forgotten; those of others,
        expired ones included, stay.

        Args:
            head: As for `move`.
            after: From `head.expired` to `head.end`; the log is not empty afterwards, unless
                nothing of it has expired.
            entries: With the seqs that follow; tokens, totals and times stay as they are given.
            lease: As for `move`.

        Returns:
            The head as it is stored now. None, and nothing changed, where another writer came
            first: one who moved the head, or who appended after `head.end`.
        """
        ...

    def lease(self, session_id: str, owner: str, seconds: float, *, renew: bool = False) -> bool:
        """Take or renew the session's lease; False while another owner's has not run out.

        One that ends later than `LONGEST_LEASE_SECONDS` from now has run out.

        With `renew`, False too unless `owner` was the last to take it and has not released it.
        """
        ...

    def release(self, session_id: str, owner: str) -> None:
        """Give the lease back, if `owner` still holds it."""
        ...

    def lock(self, name: str, owner: str, seconds: float, *, renew: bool = False) -> bool:
        """Take or renew a named lock; False while another owner's has not run out.

        For what is not a session: it fences no writes. `name` has at most 64 characters.
        With `renew`, False too unless `owner` was the last to take it and has not given it back.
        """
        ...

    def unlock(self, name: str, owner: str) -> None:
        """Give a lock back, if `owner` still holds it. Nothing of it stays in the store."""
        ...

    def due(self, limit: int = 100) -> list[Head]:
        """Sessions that somebody should look at now, and that no worker holds.

        Fair between users (a session without a user is its own): each one's session that is due
        for longest, then each one's second, and so on.
        """
        ...

    def schedule(self, head: Head, seconds: float | None) -> bool:
        """Have the session looked at again in so many seconds; None: when it changes.

        False, and nothing changed, where the stored end or version is not the head's any more.
        """
        ...

    def schedule_all(self) -> None:
        """Make every session due, as after a change of the configured blocks."""
        ...

    def delete(self, session_id: str, *, lease: Lease | None = None) -> None:
        """Remove log, keys and head. Idempotent.

        Raises:
            LeaseLost: `lease` is given and not held any more; nothing was removed.
        """
        ...

    def secure_erase(self) -> None:
        """Erase what was deleted from the files too, where the database leaves traces of it."""
        ...

    def sessions(
        self, *, user_id: str | None = None, limit: int = 100, after: str | None = None
    ) -> list[Head]:
        """Heads in order of session id, those after `after`, of one user if one is named.

        Sessions whose deletion has begun are included (`deleting` is set on them).
        """
        ...

    def counts(self) -> Counts:
        """How much there is."""
        ...

    def close(self) -> None:
        """Release connections. Idempotent."""
        ...


class GroupingStore(SessionStore, Protocol):
    """One that can append to several sessions in one transaction."""

    def append_all(self, appends: Sequence[Append]) -> list[Appended | Exception]:
        """Do appends in one transaction, each as `append` or `append_once` does it.

        Each is done or refused by itself, in order: what is refused gives its error, and keeps none
        of the others. All that are done are durable on return.
        """
        ...


class RecordStore(Protocol):
    """Short texts that blocks derive and list, such as extracted facts."""

    def put_records(
        self,
        block: str,
        records: Sequence[Record],
        *,
        replacing: tuple[str, int, int] | None = None,
        lease: Lease | None = None,
    ) -> None:
        """Insert or overwrite records by id, in one transaction.

        Args:
            block: Name of the block.
            records: What to keep.
            replacing: `(session_id, first, last)`: first remove this block's records that derive
                from any of those entries, so that a second answer replaces the first.
            lease: Write only while it is held.

        Raises:
            LeaseLost: The lease is not held any more; nothing was written.
        """
        ...

    def swap_record(self, block: str, record: Record, last: int | None) -> bool:
        """Compare-and-swap: write a record if the stored one with its id still has this `last`.

        Of several writers at once one wins, whatever process it is in.

        Args:
            block: Name of the block.
            record: What to keep, with another `last`.
            last: Of the one that it follows; None: it is the first.

        Returns:
            Whether it was written. Where a connection broke meanwhile, it may have been in any
            case.
        """
        ...

    def records(self, block: str, owner: str) -> list[Record]:
        """All records of one owner, oldest first (by created_at, then id)."""
        ...

    def record(self, block: str, record_id: str) -> Record | None:
        """One record of a block by its id, or None."""
        ...

    def owners(self, block: str, beginning: str) -> list[str]:
        """The owners of a block's records whose names begin so, in order of code points."""
        ...

    def all_records(self) -> Iterator[tuple[str, Record]]:
        """All records, each with its block's name, in no order; read some at a time.

        What is written meanwhile may be among them, or not.
        """
        ...

    def delete_records(
        self,
        block: str,
        *,
        record_id: str | None = None,
        owner: str | None = None,
        session_id: str | None = None,
        after: int = 0,
        lease: Lease | None = None,
    ) -> None:
        """Remove records that match all that is given; with `after`, those with `last` above it.

        `record_id`, `owner` or `session_id` must be given.

        Raises:
            LeaseLost: The lease is not held any more; nothing was removed.
        """
        ...


class VectorStore(Protocol):
    """Records with their features, searched exactly or nearly so within one owner.

    The features of a record are a unit vector for what it means, its word pieces, its words and its
    place in its session; see `retrieval.features`.

    A `lease` is checked as in `RecordStore`, in the same transaction, by stores that keep sessions
    too. Others ignore it: what a worker writes there after it lost its lease the engine takes back.
    """

    def open_vectors(self, block: str, dimension: int, model: str) -> None:
        """Announce a block's vectors; remembers dimension and embedding model. Idempotent.

        Dimension 0 is for records that are found by their words alone.

        Raises:
            DimensionMismatch: Vectors of another dimension or model are stored for the block.
        """
        ...

    def put_vectors(
        self,
        block: str,
        records: Sequence[Record],
        features: Features,
        *,
        lease: Lease | None = None,
    ) -> None:
        """Insert or overwrite records by id, each with its features."""
        ...

    def search_vectors(self, block: str, owner: str, query: Query, limit: int) -> list[Hit]:
        """Return the best of an owner's records, best first; see `retrieval.score`.

        Those that are nearest by meaning or have most of the question's words are compared closely,
        with their neighbours in their sessions. The rarity of a word is counted over the owner's
        records.

        Args:
            block: The block.
            owner: Whose records.
            query: What to look for.
            limit: So many at most.

        Raises:
            DimensionMismatch: The question's vector has another length than those stored.
        """
        ...

    def delete_vectors(
        self,
        block: str,
        *,
        owner: str | None = None,
        session_id: str | None = None,
        after: int = 0,
        lease: Lease | None = None,
    ) -> None:
        """As `RecordStore.delete_records`."""
        ...

    def clear_vectors(self, block: str) -> None:
        """Forget all of a block's vectors, and their dimension (before an embedder is changed)."""
        ...

    def vector_blocks(self) -> dict[str, tuple[int, str]]:
        """Dimension and embedding model of each block that vectors were announced for."""
        ...

    def all_vectors(
        self, block: str, *, session_id: str | None = None
    ) -> Iterator[tuple[list[Record], Features]]:
        """A block's records with their features, of one session if one is named; some at a
        time, as `all_records`. What is not in force yet is left out.

        Raises:
            UnsupportedOperation: Features can't be told from what is stored.
        """
        ...

    def close(self) -> None:
        """Release connections. Idempotent."""
        ...


class SwappingVectorStore(VectorStore, Protocol):
    """One that can fill vectors of another embedding beside those in force.

    Others drop a block's vectors before it is rebuilt (`clear_vectors`).
    """

    def begin_vectors(self, block: str, dimension: int, model: str) -> None:
        """Have the block written to under this embedding from now on. Idempotent.

        Who opened the one in force goes on searching it; its writes raise DimensionMismatch.
        """
        ...

    def fill_vectors(self, block: str) -> bool:
        """Whether this handle fills vectors that are not in force yet, to swap them later.

        If so, its `delete_vectors` leaves those in force as they are: what it deletes it writes
        anew. All other handles delete from both.

        Raises:
            DimensionMismatch: Vectors of another embedding are being filled.
        """
        ...

    def swap_vectors(self, block: str) -> None:
        """Put what was filled in force, in one step, and drop all else of the block. Idempotent.

        Raises:
            DimensionMismatch: Vectors of another embedding are being filled; nothing changed.
        """
        ...


class Store(SessionStore, RecordStore, VectorStore, Protocol):
    """A database that keeps sessions, facts and vectors alike."""


def keeps_records(store: object) -> TypeGuard[RecordStore]:
    """Whether the store is a `RecordStore` too, a proxy of one included."""
    return offers(store, RecordStore)


def groups_appends(store: object) -> TypeGuard[GroupingStore]:
    """Whether the store is a `GroupingStore`, a proxy of one included."""
    return offers(store, GroupingStore)


def swaps_vectors(store: object) -> TypeGuard[SwappingVectorStore]:
    """Whether the store is a `SwappingVectorStore`, a proxy of one included."""
    return offers(store, SwappingVectorStore)
