"""`EncryptedVectors`: a vector store whose records' texts and metadata are encrypted."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Literal, TypeVar

from agent_memory.core.damage import Damage
from agent_memory.core.messages import compact_json
from agent_memory.core.records import Hit, Lease, Record
from agent_memory.errors import Undecryptable, UnsupportedOperation
from agent_memory.stores.base import SwappingVectorStore, VectorStore
from agent_memory.stores.coding import to_micros
from agent_memory.stores.damage import leave_out, noted, undamaged
from agent_memory.stores.encrypted.keys import Keys
from agent_memory.stores.encrypted.messages import sealed_text
from agent_memory.stores.encrypted.sealing import PREFIX, Place
from agent_memory.stores.seals import SEALED, seals_segments
from agent_memory.stores.wrapper import VectorStoreWrapper

if TYPE_CHECKING:
    from agent_memory.retrieval.features import Features
    from agent_memory.retrieval.postings import Terms
    from agent_memory.retrieval.query import Query

Row = TypeVar("Row")
Value = TypeVar("Value")


class RecordSeals:
    """Seals records' texts and metadata, bound to all else of them, and opens them.

    Args:
        keys: The keys.
        namespace: The namespace of the records.
        plaintext: Whether records that are not sealed are taken as they are.
    """

    def __init__(self, keys: Keys, namespace: str, plaintext: bool) -> None:
        self._keys = keys
        self._namespace = namespace
        self._plaintext = plaintext

    @property
    def of_segments(self) -> SealsOfSegments:
        """Those of what records are found by."""
        return SealsOfSegments(self._keys, self._namespace, self)

    def sealed(self, kind: Literal["fact", "vector"], block: str, record: Record) -> Record:
        """A record as it is to be stored."""
        plain = compact_json([record.text, record.metadata]).encode()
        text = self._keys.current.seal(self._place(kind, block, record), plain)
        return replace(record, text=text, metadata={})

    def opened(self, kind: Literal["fact", "vector"], block: str, record: Record) -> Record:
        """A stored record as it was given.

        Raises:
            Undecryptable: It was altered, or put at another place, or its key is not given.
        """
        if self._plaintext and not sealed_text(record.text):
            return record
        try:
            plain = self._keys.open(self._place(kind, block, record), record.text)
        except Undecryptable as error:
            if not self._keys.lacks(record.text):
                error.damage = Damage(kind, record.session_id, record.first, block, record.id)
            raise
        text, metadata = json.loads(plain)
        return replace(record, text=text, metadata=metadata)

    def blinded(self, features: Features) -> Features:
        """Features with numbers for words that only who has the key can tell."""
        import numpy as np

        key = self._keys.current

        def blind(terms: Terms) -> Terms:
            ids = np.array([key.blind(term) for term in terms.ids.tolist()], np.uint32)
            return terms._replace(ids=ids)

        return replace(features, words=[blind(terms) for terms in features.words])

    def query(self, query: Query) -> Query:
        """The same for a question, under each of the keys: records may be of any of them."""

        def numbers(term: int) -> tuple[int, ...]:
            blind = tuple(key.blind(term) for key in self._keys.known)
            return (*blind, term) if self._plaintext else blind

        def every(terms: Iterable[int]) -> list[int]:
            return [number for term in terms for number in numbers(term)]

        return query.renumbered([every(word) for word in query.words], every(query.speakers))

    def _place(self, kind: str, block: str, record: Record) -> Place:
        origin = (record.owner, record.session_id, record.first, record.last)
        moment = to_micros(record.created_at)
        return (kind, self._namespace, block, record.id, *origin, record.sources, moment)


class SealsOfSegments:
    """As `seals.SegmentSeals`, by keys.

    Args:
        keys: The keys.
        namespace: The namespace of the records.
        records: Seals and opens these.
    """

    def __init__(self, keys: Keys, namespace: str, records: RecordSeals) -> None:
        self._keys = keys
        self._namespace = namespace
        self._records = records

    def sealed(self, block: str, owner: str, name: str, body: bytes) -> bytes:
        """See `SegmentSeals.sealed`."""
        return self._keys.current.seal_bytes(self._place(block, owner, name), body)

    def opened(self, block: str, owner: str, name: str, body: bytes) -> bytes:
        """See `SegmentSeals.opened`. Segments from before encryption are returned unchanged."""
        if not body.startswith(SEALED):
            return body
        try:
            return self._keys.open_bytes(self._place(block, owner, name), body)
        except Undecryptable:
            if self._keys.lacks(body[:PREFIX].decode("ascii", "replace")):
                raise
            return b""  # of the key the records tell whether it is the right one

    def features(self, block: str, records: Sequence[Record]) -> Features:
        """See `SegmentSeals.features`."""
        from agent_memory.retrieval.features import Features

        opened = opened_of(records, partial(self._records.opened, "vector", block))
        texts = {one.id: (one.text, one.created_at) for one in opened}
        said = [texts.get(one.id, ("", one.created_at)) for one in records]
        return self._records.blinded(Features.of_texts(said))

    def _place(self, block: str, owner: str, name: str) -> Place:
        return ("segment", self._namespace, block, owner, name)


def opened_of(rows: Iterable[Row], opened: Callable[[Row], Value]) -> list[Value]:
    """Decrypt rows and leave out altered ones, so that one does not hide the others.

    Raises:
        Undecryptable: A key is not given, or none of them can be opened: the key is another one.
    """
    with noted() as damaged:
        found = undamaged(rows, opened)
    for error in damaged:
        if error.damage is None or not found:
            raise error
        leave_out(error)
    return found


class EncryptedVectors(VectorStoreWrapper):
    """Encrypts the texts and metadata of a vector store's records, and numbers their words by a
    secret. The store seals their features, unless it searches these itself.

    Args:
        inner: The store that holds them.
        seals: Seals them.
    """

    def __init__(self, inner: VectorStore, seals: RecordSeals) -> None:
        VectorStoreWrapper.__init__(self, inner)
        self._records = seals
        if seals_segments(inner):
            inner.seal_segments(seals.of_segments)

    def put_vectors(
        self,
        block: str,
        records: Sequence[Record],
        features: Features,
        *,
        lease: Lease | None = None,
    ) -> None:
        sealed = [self._records.sealed("vector", block, record) for record in records]
        self._vectors.put_vectors(block, sealed, self._records.blinded(features), lease=lease)

    def search_vectors(self, block: str, owner: str, query: Query, limit: int) -> list[Hit]:
        """See `VectorStore.search_vectors`.

        Raises:
            Undecryptable: None of the records that were found can be opened, or a key is missing.
        """
        blinded = self._records.query(query)
        found = self._vectors.search_vectors(block, owner, blinded, limit)
        pending = {} if query.pending is None else query.pending.records

        def opened(hit: Hit) -> Hit:
            if pending.get(hit.record.id) is hit.record:
                return hit
            return replace(hit, record=self._records.opened("vector", block, hit.record))

        return opened_of(found, opened)

    def all_vectors(
        self, block: str, *, session_id: str | None = None
    ) -> Iterator[tuple[list[Record], Features]]:
        """See `VectorStore.all_vectors`.

        Raises:
            UnsupportedOperation: Always: words can't be told from the numbers that stand for them.
        """
        raise UnsupportedOperation(
            f"What block {block!r} keeps is encrypted, and can't be taken to another store as it "
            "is: have the block absorb the log anew there."
        )


class EncryptedSwappingVectors(EncryptedVectors):
    """The same, over a store that can fill vectors beside those in force.

    Args:
        inner: The store that holds them.
        seals: Seals them.
    """

    def __init__(self, inner: SwappingVectorStore, seals: RecordSeals) -> None:
        super().__init__(inner, seals)
        self._swapping = inner

    def begin_vectors(self, block: str, dimension: int, model: str) -> None:
        self._swapping.begin_vectors(block, dimension, model)

    def fill_vectors(self, block: str) -> bool:
        return self._swapping.fill_vectors(block)

    def swap_vectors(self, block: str) -> None:
        self._swapping.swap_vectors(block)
