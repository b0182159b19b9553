"""The protocols of a store. `stores.kernel` implements them over a database's twelve methods.

A store serves one namespace. Its methods are safe to call from many threads, and on a shared
database from many processes. Ids are already validated. The engine decides, and the store stores.

Damaged data affects only calls for it. A call for one session raises `Damaged` with the readable
part of the head. Calls for many sessions leave it out, see `stores.damage`. A deletion does not
read the damaged data.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, TypeGuard

from agent_memory.core.idempotency import Append, Appended
from agent_memory.core.plugins import offers
from agent_memory.core.records import Draft, Entry, Head, Hit, Lag, Lease, Record
from agent_memory.stores.once import OnceStore

if TYPE_CHECKING:
    from agent_memory.retrieval.features import Features
    from agent_memory.retrieval.query import Query


Durability = Literal["process", "power"]
"""The failure that an acknowledged write survives.

With "power", each write is synced to disk and survives a power loss. With "process", it survives
the end of the process. Deletions are synced in both.

None means "power". On Redis and MySQL it means the server's settings.
"""

LONGEST_LEASE_SECONDS = 120.0
"""The longest time of a lease or lock. Callers request less than half of it.

A lease with more time left is of a machine with a wrong clock. It may be taken over.
"""


@dataclass(frozen=True, slots=True)
class Counts:
    """The number of sessions and entries in a store's namespace."""

    sessions: int
    entries: int


class SessionStore(OnceStore, Protocol):
    """A store of logs and heads of sessions."""

    @property
    def remote(self) -> bool:
        """Return whether calls wait for a server, and are best made concurrently."""
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

        The session is created if it does not exist. The last system message becomes the head's
        `system`. A `user_id` is set on a session without one. This clears `cursors`, so that
        blocks absorb the session again under its user. The append is durable on return.

        If `draft.placed` is set, call it with the entry's seq to get the message to store.

        An entry's `total` is the previous one's plus its own tokens; a system message adds
        nothing. An append increments `version` only if it creates the session, or changes its
        system message or user. The session becomes due in `within` seconds; an
        earlier due time stays. The due time is stored before the entries or with them.

        Raises:
            SessionOfAnotherUser: The session has another user.
            SessionDeleting: A deletion of the session has begun.
        """
        ...

    def head(self, session_id: str) -> Head | None:
        """Return the head, or None for a session that does not exist."""
        ...

    def existing(self, session_ids: Collection[str]) -> set[str]:
        """Return the sessions that exist and are not being deleted."""
        ...

    def read(self, session_id: str, *, after: int = 0, limit: int | None = None) -> list[Entry]:
        """Return the remaining entries with seq above `after`, in order, at most `limit`."""
        ...

    def pick(self, session_id: str, seqs: Sequence[int]) -> list[Entry]:
        """Return the remaining entries with these seqs, in order."""
        ...

    def lagging(
        self, block: str, *, user_id: str | None = None, session_id: str | None = None
    ) -> list[Lag]:
        """Return the sessions with entries past a block's cursor, the newest session first.

        The search covers one user, or the named session. Sessions whose deletion has begun are
        left out.
        """
        ...

    def tails(
        self, block: str, session_ids: Collection[str], *, before: int, limit: int
    ) -> list[Entry]:
        """Return the entries past a block's cursor of each session, in order.

        Args:
            block: The block of the cursor.
            session_ids: The sessions.
            before: The number of entries before the cursor to include.
            limit: The most entries of each session; the newest are returned.
        """
        ...

    def move(self, head: Head, *, lease: Lease | None = None) -> Head | None:
        """Compare-and-swap: write `head` if the stored version still equals `head.version`.

        The call writes expired, start, start_total, pinned, pinned_tokens, system, system_tokens,
        summary, cursors, user_id and deleting. The fields `end` and `total` belong to the log.
        Entries with seq up to `expired`, which never decreases, are removed. A head that is
        `deleting` makes the session due. Return the stored head (version one higher), or None if
        another writer came first.

        Raises:
            LeaseLost: `lease` was passed and is no longer held; nothing was written.
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
        """Do what `move(head)` does, and replace the log after `after` by entries. One transaction.

        A head of version 0 creates the session with its `created_at` and makes it due. If it
        already exists, return None. Keys of messages past the new end of the log are removed. All
        other keys stay, even of expired messages.

        Args:
            head: The head, as for `move`.
            after: A seq from `head.expired` to `head.end`. If messages have
                expired, at least one entry must remain.
            entries: Entries with the seqs that follow. Their tokens, totals and times are stored
                unchanged.
            lease: The lease, as for `move`.

        Returns:
            The stored head. None, without any change, if another writer moved the head or appended
            after `head.end`.
        """
        ...

    def lease(self, session_id: str, owner: str, seconds: float, *, renew: bool = False) -> bool:
        """Take or renew the session's lease. Return False while another owner's is valid.

        A lease that ends later than `LONGEST_LEASE_SECONDS` from now is not valid.

        With `renew`, return False also if another owner has taken it since, or `owner` has released
        it.
        """
        ...

    def release(self, session_id: str, owner: str) -> None:
        """Release the lease, if `owner` still holds it."""
        ...

    def lock(self, name: str, owner: str, seconds: float, *, renew: bool = False) -> bool:
        """Take or renew a named lock. Return False while another owner's is valid.

        A lock is not for sessions: it does not fence writes. `name` has at most 64 characters.
        With `renew`, return False also if another owner has taken it since, or `owner` has released
        it.
        """
        ...

    def unlock(self, name: str, owner: str) -> None:
        """Release a lock, if `owner` still holds it. The store retains nothing of it."""
        ...

    def due(self, limit: int = 100) -> list[Head]:
        """Return sessions that are due and that no worker holds.

        The order is fair between users: each user's longest due session, then each one's second,
        and so on. A session without a user counts as a user.
        """
        ...

    def schedule(self, head: Head, seconds: float | None) -> bool:
        """Make the session due in this many seconds. With None it becomes due when it changes.

        Return False, without any change, if the stored end or version differs from the head's.
        """
        ...

    def schedule_all(self) -> None:
        """Make every session due, as after a change of the configured blocks."""
        ...

    def delete(self, session_id: str, *, lease: Lease | None = None) -> None:
        """Delete log, keys and head. Idempotent.

        Raises:
            LeaseLost: `lease` was passed and is no longer held; nothing was deleted.
        """
        ...

    def secure_erase(self) -> None:
        """Erase traces of deleted data from the database's files."""
        ...

    def sync(self) -> None:
        """Wait until every acknowledged write survives a power loss.

        This is needed with `durability="process"`. It does nothing on servers, which sync by their
        settings.
        """
        ...

    def sessions(
        self, *, user_id: str | None = None, limit: int = 100, after: str | None = None
    ) -> list[Head]:
        """Return heads in order of session id, those after `after`, of one user if named.

        Sessions whose deletion has begun are included (`deleting` is set on them).
        """
        ...

    def counts(self) -> Counts:
        """Return the number of sessions and entries."""
        ...

    def close(self) -> None:
        """Release connections. Idempotent."""
        ...


class GroupingStore(SessionStore, Protocol):
    """A store that can append to several sessions in one transaction."""

    def append_all(self, appends: Sequence[Append]) -> list[Appended | Exception]:
        """Make appends in one transaction, each like `append` or `append_once`.

        Each succeeds or is refused separately, in order. A refused append returns its error and
        does not affect the others. All that succeed are durable on return.
        """
        ...


class StoredBlocks(NamedTuple):
    """The blocks with stored data: those with records, and those with vectors."""

    facts: Collection[str]
    vectors: Collection[str]


class WholeDeletingStore(SessionStore, Protocol):
    """A store that can delete sessions with all that derives from them in one transaction."""

    @property
    def spans(self) -> bool:
        """Return whether one transaction can change several sessions, in this database."""
        ...

    def blocks(self) -> StoredBlocks:
        """Return the names of all blocks with records or vectors."""
        ...

    def delete_whole(
        self,
        heads: Sequence[Head],
        blocks: StoredBlocks,
        *,
        owners: Collection[str] = (),
        locks: Collection[str] = (),
        leaving: Mapping[str, Sequence[Record]] | None = None,
    ) -> bool:
        """Delete sessions and owners, with their records and vectors, and store other records.

        Args:
            heads: The sessions, as they were read.
            blocks: The blocks to delete from: all of `blocks()`.
            owners: Owners whose records and vectors go, whatever session they derive from.
            locks: Names of locks that nobody may hold meanwhile.
            leaving: The records to store, by block.

        Returns:
            False, without any change, if a head has moved, if a worker holds one of the sessions or
            locks, or if another writer changed the vectors.
        """
        ...


class RecordStore(Protocol):
    """A store of short texts that blocks derive and list, such as extracted facts."""

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
            records: The records to store.
            replacing: `(session_id, first, last)`: first delete this block's records that derive
                from any of these entries. A second answer thus replaces the first.
            lease: Write only while this lease is held.

        Raises:
            LeaseLost: The lease is no longer held; nothing was written.
        """
        ...

    def swap_record(self, block: str, record: Record, last: int | None) -> bool:
        """Compare-and-swap: write a record if the stored one with its id still has this `last`.

        Among concurrent writers in any process, one succeeds.

        Args:
            block: Name of the block.
            record: The record to store, with another `last`.
            last: The `last` of the stored record; None if there is none.

        Returns:
            Whether it was written. After a broken connection this is not certain.
        """
        ...

    def records(self, block: str, owner: str) -> list[Record]:
        """Return all records of one owner, oldest first (by created_at, then id)."""
        ...

    def record(self, block: str, record_id: str) -> Record | None:
        """Return one record of a block by its id, or None."""
        ...

    def owners(self, block: str, beginning: str) -> list[str]:
        """Return the owners of a block's records with this prefix, in order of code points."""
        ...

    def all_records(self) -> Iterator[tuple[str, Record]]:
        """Yield all records with the names of their blocks, in no order, read in pages.

        Concurrent writes may be included or not.
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
        """Delete the records that match all arguments; with `after`, those with `last` above it.

        `record_id`, `owner` or `session_id` is required.

        Raises:
            LeaseLost: The lease is no longer held; nothing was deleted.
        """
        ...


class VectorStore(Protocol):
    """A store of records with their features. Search within one owner is exact or nearly exact.

    The features of a record are a unit vector of its meaning, its word pieces, its words and its
    place in its session; see `retrieval.features`.

    Stores that also hold sessions check a `lease` as in `RecordStore`, in the same transaction.
    Others ignore it, and the engine reverts writes of a worker that lost its lease.
    """

    def open_vectors(self, block: str, dimension: int, model: str) -> None:
        """Register a block's vectors with dimension and embedding model. Idempotent.

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

        The records nearest in meaning, and those with most of the query's words, are compared in
        detail, with their neighbours in their sessions. The rarity of a word refers to the owner's
        records.

        Args:
            block: The block.
            owner: The owner of the records.
            query: The query.
            limit: The most records to return.

        Raises:
            DimensionMismatch: The query's vector and the stored vectors differ in length.
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
        """Delete matching vectors, like `RecordStore.delete_records`."""
        ...

    def clear_vectors(self, block: str) -> None:
        """Delete all of a block's vectors, and their dimension (before a change of the
        embedder)."""
        ...

    def vector_blocks(self) -> dict[str, tuple[int, str]]:
        """Return dimension and embedding model of each block with registered vectors."""
        ...

    def all_vectors(
        self, block: str, *, session_id: str | None = None
    ) -> Iterator[tuple[list[Record], Features]]:
        """Yield a block's records with their features, of one session if named, read in pages.

        Vectors that are being filled for a later swap are left out.

        Raises:
            UnsupportedOperation: Features cannot be restored from the stored data.
        """
        ...

    def close(self) -> None:
        """Release connections. Idempotent."""
        ...


class SwappingVectorStore(VectorStore, Protocol):
    """A store that can fill vectors of another embedding beside the active ones.

    Other stores delete a block's vectors before a rebuild (`clear_vectors`).
    """

    def begin_vectors(self, block: str, dimension: int, model: str) -> None:
        """Begin new vectors of the block, of this embedding, for all further writes. Idempotent.

        Handles that opened the active embedding can still search it; their writes raise
        DimensionMismatch.
        """
        ...

    def fill_vectors(self, block: str) -> bool:
        """Return whether this handle fills vectors for a later swap.

        If it does, its `delete_vectors` spares the active ones: the rebuild deletes a
        session only to write it again. All other handles delete from both.

        Raises:
            DimensionMismatch: Vectors of another embedding are being filled.
        """
        ...

    def swap_vectors(self, block: str) -> None:
        """Activate the filled vectors in one step, and delete the block's others. Idempotent.

        Raises:
            DimensionMismatch: Vectors of another embedding are being filled; nothing changed.
        """
        ...


class Store(SessionStore, RecordStore, VectorStore, Protocol):
    """A database that stores sessions, facts and vectors."""


def keeps_records(store: object) -> TypeGuard[RecordStore]:
    """Return whether the store is also a `RecordStore`, or a proxy of one."""
    return offers(store, RecordStore)


def groups_appends(store: object) -> TypeGuard[GroupingStore]:
    """Return whether the store is a `GroupingStore`, or a proxy of one."""
    return offers(store, GroupingStore)


def deletes_whole(store: object) -> TypeGuard[WholeDeletingStore]:
    """Return whether the store, with its database, can delete sessions in one transaction."""
    return offers(store, WholeDeletingStore) and bool(getattr(store, "spans", False))


def swaps_vectors(store: object) -> TypeGuard[SwappingVectorStore]:
    """Return whether the store is a `SwappingVectorStore`, or a proxy of one."""
    return offers(store, SwappingVectorStore)
