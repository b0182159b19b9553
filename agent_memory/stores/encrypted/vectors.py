"""`EncryptedVectors`: a vector store whose records' texts and metadata are encrypted."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from agent_memory.core.messages import compact_json
from agent_memory.core.records import Hit, Lease, Record
from agent_memory.errors import UnsupportedOperation
from agent_memory.stores.base import SwappingVectorStore, VectorStore
from agent_memory.stores.coding import to_micros
from agent_memory.stores.encrypted.keys import Keys
from agent_memory.stores.encrypted.messages import sealed_text
from agent_memory.stores.encrypted.sealing import Place
from agent_memory.stores.wrapper import VectorStoreWrapper

if TYPE_CHECKING:
    from agent_memory.retrieval.features import Features, Query
    from agent_memory.retrieval.terms import Terms


class RecordSeals:
    """Seals records' texts and metadata, bound to all else of them, and opens them.

    Args:
        keys: The keys.
        namespace: Of the records.
        plaintext: Whether records that are not sealed are taken as they are.
    """

    def __init__(self, keys: Keys, namespace: str, plaintext: bool) -> None:
        self._keys = keys
        self._namespace = namespace
        self._plaintext = plaintext

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
        plain = self._keys.open(self._place(kind, block, record), record.text)
        text, metadata = json.loads(plain)
        return replace(record, text=text, metadata=metadata)

    def blinded(self, features: Features) -> Features:
        """Features with numbers for words that only who has the key can tell."""
        import numpy as np

        key = self._keys.current

        def blind(terms: Terms) -> Terms:
            ids = np.array([key.blind(term) for term in terms.ids.tolist()], np.uint32)
            return terms._replace(ids=ids)

        return replace(
            features,
            words=[blind(terms) for terms in features.words],
            words_around=[blind(terms) for terms in features.words_around],
        )

    def query(self, query: Query) -> Query:
        """The same for a question, under each of the keys: records may be of any of them."""
        terms = [key.blind(term) for key in self._keys.known for term in query.words]
        if self._plaintext:
            terms += query.words
        return replace(query, words=tuple(dict.fromkeys(terms)))

    def _place(self, kind: str, block: str, record: Record) -> Place:
        origin = (record.owner, record.session_id, record.first, record.last)
        moment = to_micros(record.created_at)
        return (kind, self._namespace, block, record.id, *origin, record.sources, moment)


class EncryptedVectors(VectorStoreWrapper):
    """Encrypts the texts and metadata of a vector store's records, and numbers their words by a
    secret. The vectors it can't encrypt: they are what is searched.

    Args:
        inner: Where they are kept.
        seals: Seals them.
    """

    def __init__(self, inner: VectorStore, seals: RecordSeals) -> None:
        VectorStoreWrapper.__init__(self, inner)
        self._records = seals

    def put_vectors(
        self,
        block: str,
        records: Sequence[Record],
        features: Features,
        *,
        lease: Lease | None = None,
    ) -> None:
        """See `VectorStore.put_vectors`."""
        sealed = [self._records.sealed("vector", block, record) for record in records]
        self._vectors.put_vectors(block, sealed, self._records.blinded(features), lease=lease)

    def search_vectors(self, block: str, owner: str, query: Query, depth: int) -> list[Hit]:
        """See `VectorStore.search_vectors`.

        Raises:
            Undecryptable: A record that was found cannot be opened.
        """
        blinded = self._records.query(query)
        found = self._vectors.search_vectors(block, owner, blinded, depth)
        return [
            replace(hit, record=self._records.opened("vector", block, hit.record)) for hit in found
        ]

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
        inner: Where they are kept.
        seals: Seals them.
    """

    def __init__(self, inner: SwappingVectorStore, seals: RecordSeals) -> None:
        super().__init__(inner, seals)
        self._swapping = inner

    def begin_vectors(self, block: str, dimension: int, model: str) -> None:
        """See `SwappingVectorStore.begin_vectors`."""
        self._swapping.begin_vectors(block, dimension, model)

    def fill_vectors(self, block: str) -> bool:
        """See `SwappingVectorStore.fill_vectors`."""
        return self._swapping.fill_vectors(block)

    def swap_vectors(self, block: str) -> None:
        """See `SwappingVectorStore.swap_vectors`."""
        self._swapping.swap_vectors(block)
