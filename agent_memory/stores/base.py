"""The types of stores. `Store` is built on a database's twelve methods; a `VectorStore` such as
Qdrant has vectors alone.

A store serves one namespace. Its methods are safe to call from many threads, and on a shared
database from many processes. Ids are already validated. The engine decides, and the store stores.

Damaged data affects only calls for it. A call for one session raises `Damaged` with the readable
part of the head. Calls for many sessions leave it out, see `stores.damage`. A deletion does not
read the damaged data.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, TypeGuard

from agent_memory.core.plugins import offers
from agent_memory.core.records import Hit, Lease, Record
from agent_memory.stores.kernel.contract import LONGEST_LEASE_SECONDS
from agent_memory.stores.kernel.records import RecordStore
from agent_memory.stores.kernel.sessions import Counts, SessionStore
from agent_memory.stores.kernel.vectors import KernelStore, StoredBlocks

if TYPE_CHECKING:
    from agent_memory.retrieval.features import Features
    from agent_memory.retrieval.query import Query
    from agent_memory.stores.qdrant.store import QdrantStore

__all__ = [
    "LONGEST_LEASE_SECONDS",
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

With "power", each write is synced to disk and survives a power loss. With "process", it survives
the end of the process. Deletions are synced in both.

None means "power". On Redis and MySQL it means the server's settings.
"""

Store: TypeAlias = KernelStore
"""A database that stores sessions, facts and vectors."""


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

    def clear_vectors(self, block: str) -> None:
        """Delete all of a block's vectors, and their dimension (before a change of the
        embedder)."""

    def vector_blocks(self) -> dict[str, tuple[int, str]]:
        """Return dimension and embedding model of each block with registered vectors."""

    def all_vectors(
        self, block: str, *, session_id: str | None = None
    ) -> Iterator[tuple[list[Record], Features]]:
        """Yield a block's records with their features, of one session if named, read in pages.

        Vectors that are being filled for a later swap are left out.

        Raises:
            UnsupportedOperation: Features cannot be restored from the stored data.
        """

    def close(self) -> None:
        """Release connections. Idempotent."""


def keeps_records(store: object) -> TypeGuard[RecordStore]:
    """Return whether the store is also a `RecordStore`, or a proxy of one."""
    return offers(store, RecordStore)


def swaps_vectors(store: object) -> TypeGuard[QdrantStore]:
    """Return whether the store can fill vectors of another embedding beside the active ones.

    Other stores delete a block's vectors before a rebuild (`clear_vectors`).
    """
    return hasattr(store, "swap_vectors")
