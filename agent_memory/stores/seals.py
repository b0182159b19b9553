"""The encryption of segments on their way into a database and back; none by default.

Also of the features of a single record, in stores that keep these one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from agent_memory.core.plugins import offers
from agent_memory.errors import Undecryptable
from agent_memory.stores.base import VectorStore

if TYPE_CHECKING:
    from typing import TypeGuard

    from agent_memory.core.records import Record
    from agent_memory.retrieval.features import Features

SEALED = b"sealed."
"""The beginning of everything sealed, in each format."""


class SegmentSeals(Protocol):
    """Seals what records are found by, each value bound to its place."""

    def sealed(self, block: str, owner: str, name: str, body: bytes) -> bytes:
        """As it is to be stored."""
        ...

    def opened(self, block: str, owner: str, name: str, body: bytes) -> bytes:
        """As it was given; something that cannot be read, where it was altered.

        Raises:
            Undecryptable: Its key is not given.
        """
        ...

    def features(self, block: str, records: Sequence[Record]) -> Features:
        """Return the features of stored records that their own words give.

        Raises:
            Undecryptable: None of them can be opened.
        """
        ...


class Unsealed:
    """Segments stand in the database as they are."""

    def sealed(self, block: str, owner: str, name: str, body: bytes) -> bytes:
        """See `SegmentSeals.sealed`."""
        return body

    def opened(self, block: str, owner: str, name: str, body: bytes) -> bytes:
        """See `SegmentSeals.opened`."""
        if body.startswith(SEALED):
            raise Undecryptable(
                f"What the records of block {block!r} are found by is encrypted. Give the keys: "
                "`encryption`, or `keys`."
            )
        return body

    def features(self, block: str, records: Sequence[Record]) -> Features:
        """See `SegmentSeals.features`."""
        from agent_memory.retrieval.features import Features

        return Features.of_texts([(one.text, one.created_at) for one in records])


UNSEALED: SegmentSeals = Unsealed()


class SealingStore(VectorStore, Protocol):
    """A store that can seal what records are found by."""

    def seal_segments(self, seals: SegmentSeals) -> None:
        """Seal what is written from now on, and open what is read."""
        ...


def seals_segments(store: object) -> TypeGuard[SealingStore]:
    """Whether the store is a `SealingStore`, a proxy of one included."""
    return offers(store, SealingStore)
