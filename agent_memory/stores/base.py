"""The types of stores. A `Store` has sessions, facts and vectors. A `VectorStore` has vectors only.

A store serves one namespace. The methods of a store are safe to call from many threads, and on a
shared database from many processes. The engine validates ids before it calls a store.

Damaged data affects only calls that read it. A call for one session raises `Damaged`, with the
readable part of the head. A call for many sessions leaves damaged data out and reports it; see
`stores.damage`. Deletions succeed, because they do not read the damaged data.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, TypeGuard

from agent_memory.core.plugins import offers
from agent_memory.core.records import Hit, Lease, Record
from agent_memory.stores.kernel.contract import LONGEST_LEASE_SECONDS
from agent_memory.stores.kernel.sessions import Counts, SessionStore
from agent_memory.stores.kernel.vectors import KernelStore, RecordStore, StoredBlocks

if TYPE_CHECKING:
    from agent_memory.retrieval.features import Features
    from agent_memory.retrieval.query import Query

__all__ = [
    "LONGEST_LEASE_SECONDS",
    "UNSURE",
    "Counts",
    "Durability",
    "RecordStore",
    "SessionStore",
    "Store",
    "StoredBlocks",
    "VectorStore",
]

Durability = Literal["process", "power"]
"""The failure that an acknowledged write survives.

With "power", each write is synced to disk and survives a power loss. With "process", a write
survives the end of the process. Deletions are synced to disk with either value. None means "power",
except on Redis and MySQL, where the server's settings decide.
"""

UNSURE = (
    "{} If this was a write, it may have succeeded. Read the session before you retry the write."
)
"""The text of an error after a lost answer."""

Store: TypeAlias = KernelStore
"""A database that stores sessions, facts and vectors."""


class VectorStore(Protocol):
    """A store of records with their features. A search is exact or nearly exact.

    The features of a record are a unit vector of its meaning, its word pieces, its words, and its
    place in the session; see `retrieval.features`.

    A store that also has sessions checks `lease` in the transaction of the write, as in
    `RecordStore`. Other stores ignore `lease`. If a worker loses its lease while it writes to such
    a store, the engine reverts the worker's writes.
    """

    def open_vectors(self, block: str, dimension: int, model: str) -> None:
        """Register the dimension and the embedding model of a block's vectors. Idempotent.

        With dimension 0, records have no vector of meaning and are found by their words.

        Raises:
            DimensionMismatch: Vectors of another dimension or model are stored for the block.
        """

    def put_vectors(
        self,
        block: str,
        records: Sequence[Record],
        features: Features,
        *,
        lease: Lease | None = None,
    ) -> None:
        """Insert or overwrite records by id, each with its features."""

    def search_vectors(self, block: str, owner: str, query: Query, limit: int) -> list[Hit]:
        """Return an owner's records that match a query best, best first; see `retrieval.score`.

        Candidates are the records nearest in meaning, the records with most of the query's words,
        and the neighbours of these records in their sessions. All candidates are compared in
        detail. The rarity of a word is computed from the owner's records (from all owners' records
        on Qdrant before 1.19). At most `limit` records are returned.

        Raises:
            DimensionMismatch: The query's vector and the stored vectors differ in length.
        """
        raise NotImplementedError

    def delete_vectors(
        self,
        block: str,
        *,
        owner: str | None = None,
        session_id: str | None = None,
        after: int = 0,
        lease: Lease | None = None,
    ) -> None:
        """Delete the vectors that match all arguments, like `RecordStore.delete_records`."""

    def clear_vectors(self, block: str) -> None:
        """Delete a block's vectors and their registration, so that the embedder can be changed."""

    def vector_blocks(self) -> dict[str, tuple[int, str]]:
        """Return the dimension and the embedding model of each registered block."""
        raise NotImplementedError

    def all_vectors(
        self, block: str, *, session_id: str | None = None
    ) -> Iterator[tuple[list[Record], Features]]:
        """Yield pages of a block's records with their features.

        With `session_id`, only records of this session are returned.

        Raises:
            UnsupportedOperation: Features cannot be restored from the stored data.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Release connections. Idempotent."""


def keeps_records(store: object) -> TypeGuard[RecordStore]:
    """Return whether the store is also a `RecordStore`, or a proxy of a `RecordStore`."""
    return offers(store, RecordStore)
