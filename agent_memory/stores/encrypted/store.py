"""`EncryptedStore`: a store whose content is encrypted before it reaches the database."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from agent_memory.core.records import Hit, Lease, Record
from agent_memory.errors import UnsupportedOperation
from agent_memory.stores.base import Store, VectorStore
from agent_memory.stores.damage import undamaged_records
from agent_memory.stores.encrypted.kernel import Cipher, EncryptedKernel
from agent_memory.stores.encrypted.keys import Keys
from agent_memory.stores.kernel.coding import VECTOR, record_document, record_from
from agent_memory.stores.kernel.vectors import KernelStore

if TYPE_CHECKING:
    from agent_memory.retrieval.features import Features, Terms
    from agent_memory.retrieval.query import Query


class EncryptedStore(KernelStore):
    """Encrypts messages, summaries, texts of records and search features.

    Another store, `inner`, stores the ciphertexts. Each ciphertext is bound to its place, such as a
    session and seq, and cannot be decrypted elsewhere.

        store = EncryptedStore(open_store("sqlite:///m.db"), Keys.from_environment())
        memory = AgentMemory(store=store)

    The database shows ids, seqs, token counts, times, and which messages are system messages. If a
    key is lost, sessions can still be deleted with `AgentMemory(store=inner)`.

    Args:
        inner: The other store. `close` also closes this store.
        namespace: The namespace of the other store. Data that is moved to another namespace cannot
            be decrypted there.
        plaintext: Whether data that was stored before encryption may be read. With True, anybody
            with write access to the database can insert messages. Use True only until all data is
            encrypted.
    """

    def __init__(
        self, inner: Store, keys: Keys, namespace: str = "default", *, plaintext: bool = False
    ) -> None:
        self._cipher = Cipher(keys, namespace, plaintext)
        super().__init__(EncryptedKernel(inner.kernel, self._cipher))
        self.signing_keys = keys

    def vectors_of(self, store: VectorStore) -> VectorStore:
        """Return a vector store that encrypts with the same keys and stores records in `store`."""
        return cast("VectorStore", EncryptedVectors(store, self._cipher))


class EncryptedVectors:
    """Encrypts records for a vector store whose server searches, such as Qdrant.

    Texts and metadata are encrypted. The ids of words are replaced by ids computed with the key.
    Vectors stay readable. Calls without records go to the inner store unchanged.
    """

    def __init__(self, inner: VectorStore, cipher: Cipher) -> None:
        self._inner = inner
        self._cipher = cipher

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def put_vectors(
        self,
        block: str,
        records: Sequence[Record],
        features: Features,
        *,
        lease: Lease | None = None,
    ) -> None:
        import numpy as np

        key = self._cipher.keys.current

        def blind(terms: Terms) -> Terms:
            ids = np.array([key.blind(term) for term in terms.ids.tolist()], np.uint32)
            return terms._replace(ids=ids)

        documents = [record_document(f"{VECTOR}{block}", record, 0) for record in records]
        encrypted = [record_from(self._cipher.encoded(doc), "vector", block) for doc in documents]
        blinded = replace(features, words=[blind(terms) for terms in features.words])
        self._inner.put_vectors(block, encrypted, blinded, lease=lease)

    def search_vectors(self, block: str, owner: str, query: Query, limit: int) -> list[Hit]:
        """Search like `VectorStore.search_vectors`. Raise `Undecryptable` without the right key.

        The query contains one id of each word for each key.
        """
        hits = self._inner.search_vectors(block, owner, self._blinded(query), limit)
        pending = {} if query.pending is None else query.pending.records
        stored = [hit.record for hit in hits if pending.get(hit.record.id) is not hit.record]
        documents = [record_document(f"{VECTOR}{block}", record, 0) for record in stored]
        decoded = [doc for doc in self._cipher.decoded(documents) if doc is not None]
        records = undamaged_records(decoded, lambda doc: record_from(doc, "vector", block))
        by_id = {**{record.id: record for record in records}, **pending}
        return [replace(hit, record=by_id[hit.record.id]) for hit in hits if hit.record.id in by_id]

    def _blinded(self, query: Query) -> Query:
        def numbers(terms: Iterable[int]) -> list[int]:
            return [number for term in terms for number in self._cipher.numbers(term)]

        return query.renumbered([numbers(word) for word in query.words], numbers(query.speakers))

    def all_vectors(
        self, block: str, *, session_id: str | None = None
    ) -> Iterator[tuple[list[Record], Features]]:
        """Raise `UnsupportedOperation`: the original ids of words cannot be restored."""
        raise UnsupportedOperation(
            f"The records of block {block!r} are encrypted outside the session store, and cannot "
            "be copied to another store. Let the block absorb the log in the other store."
        )
