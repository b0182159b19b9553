"""`EncryptedStore`: a store whose content is encrypted before it reaches the database.

These are encrypted as one value each: a message, a system message, a summary, the text and metadata
of a record, the digests of an idempotency key, and search features. Other fields stay readable. A
ciphertext decrypts only with the fields that identify its record, such as session and seq.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from agent_memory.core.damage import Damage
from agent_memory.core.formats.registry import ENCRYPTED
from agent_memory.core.limits import UNREADABLE
from agent_memory.core.messages import SYSTEM_ROLES, Message, compact_json
from agent_memory.core.records import Hit, Lease, Record
from agent_memory.core.system_collections import PLAIN
from agent_memory.errors import Undecryptable, UnsupportedOperation
from agent_memory.stores.base import Store, VectorStore
from agent_memory.stores.damage import undamaged_records
from agent_memory.stores.encrypted.keys import Keys, Place
from agent_memory.stores.kernel import contract as k
from agent_memory.stores.kernel.coding import MARK, from_micros, record_document, record_from
from agent_memory.stores.kernel.rules import KernelWrapper
from agent_memory.stores.kernel.vectors import KernelStore

if TYPE_CHECKING:
    from agent_memory.retrieval.features import Features, Terms
    from agent_memory.retrieval.query import Query

_BEFORE, _AFTER = '"raw":{"sealed":"', f'"}},"format":"{ENCRYPTED}"}}'
_SYSTEM = '"role":"system",'
_PLAIN = {f"{k.FACT}{collection.name}" for collection in PLAIN}

_Failure = tuple[Undecryptable, str, Damage]
"""An error, the ciphertext that was not decrypted, and the damage to report for the record."""


class EncryptedKernel(KernelWrapper):
    """Encrypts the content of lines and documents. With `plaintext`, reads plain content too."""

    def __init__(self, inner: k.Kernel, keys: Keys, namespace: str, plaintext: bool) -> None:
        super().__init__(inner)
        self.keys = keys
        self._namespace = namespace
        self._plaintext = plaintext

    def encoded_line(self, line: k.Line) -> k.Line:
        """Encrypt a message. The line still shows whether it is a system message."""
        plain = line.body or compact_json({"role": line.role, "content": line.text})
        is_system = line.role in SYSTEM_ROLES
        if not line.role:
            message = Message.from_json(line.body, from_micros(line.created_at))
            is_system = message.is_system
        body = self._carrier(self._message(line), plain, is_system=is_system)
        return line._replace(role="system" if is_system else "", text="", body=body)

    def decoded_lines(self, lines: Sequence[k.Line]) -> list[k.Line]:
        decoded: list[k.Line] = []
        failures: list[_Failure] = []
        for line in lines:
            text = _carried(line.body)
            if text is None and self._plaintext:
                decoded.append(line)
                continue
            body: str
            try:
                body = self.keys.decrypt(self._message(line), text or "").decode()
            except Undecryptable as error:
                body = k.Unreadable.of(error)
                damage = Damage("message", line.session, line.seq)
                failures.append((error, text or "", damage))
            decoded.append(line._replace(body=body))
        self._attribute(failures)
        return decoded

    def encoded(self, document: k.Document) -> k.Document:
        collection = document.collection
        if collection in _PLAIN:
            return document
        if collection.startswith((k.FACT, k.VECTOR)):
            body = json.loads(document.body)
            plain = compact_json([body["text"], body["metadata"]]).encode()
            body |= {"text": self._encrypt(self._record(document, body), plain), "metadata": {}}
        elif collection == k.HEAD and document.body:
            body = self._encoded_head(document.id, json.loads(document.body))
        elif collection == k.KEY:
            name, digest, *rest = json.loads(document.body)
            place = self._place("key", document.session, name)
            body = [name, self._encrypt(place, digest.encode()), *rest]
        elif collection.startswith(k.SEGMENT):
            place = self._features(document)
            return document._replace(data=self.keys.current.encrypt_bytes(place, document.data))
        else:
            return document
        return document._replace(body=compact_json(body))

    def decoded(self, documents: Sequence[k.Document | None]) -> list[k.Document | None]:
        failures: list[_Failure] = []
        decoded = [doc and self._opened(doc, failures) for doc in documents]
        self._attribute(failures)
        return decoded

    def _opened(self, doc: k.Document, failures: list[_Failure]) -> k.Document:
        collection = doc.collection
        try:
            if collection.startswith((k.FACT, k.VECTOR)):
                return doc._replace(body=self._decoded_record(doc, failures))
            if collection == k.HEAD and doc.body:
                return doc._replace(body=self._decoded_head(doc.id, json.loads(doc.body)))
            if collection == k.KEY:
                return doc._replace(body=self._decoded_key(doc))
            if collection.startswith(k.SEGMENT) and doc.data:
                return doc._replace(data=self._decoded_features(doc))
        except Undecryptable as error:
            return doc._replace(body=k.Unreadable.of(error), data=b"")
        except UNREADABLE:
            pass  # the caller also fails to decode the body, and raises an error with the place
        return doc

    def _decoded_record(self, doc: k.Document, failures: list[_Failure]) -> str:
        body = json.loads(doc.body)
        text = body["text"]
        if (self._plaintext or doc.collection in _PLAIN) and not text.startswith(MARK):
            return doc.body
        try:
            plain = self.keys.decrypt(self._record(doc, body), text)
        except Undecryptable as error:
            kind, _, block = doc.collection.partition(":")
            damage = Damage(
                "fact" if kind == "fact" else "vector", doc.session, doc.first, block, doc.id
            )
            failures.append((error, text, damage))
            raise
        body["text"], body["metadata"] = json.loads(plain)
        return compact_json(body)

    def _encoded_head(self, session_id: str, body: dict[str, Any]) -> dict[str, Any]:
        system, summary = body["system"], body["summary"]
        if system is not None:
            place = self._place("system", session_id)
            body["system"] = self._carrier(place, system, is_system=True)
        if summary is not None:
            plain = compact_json([summary["text"], summary["redo_text"]]).encode()
            text = self._encrypt(self._summary(session_id, summary), plain)
            body["summary"] = {**summary, "text": text, "redo_text": None}
        return body

    def _decoded_head(self, session_id: str, body: dict[str, Any]) -> str:
        system, summary = body["system"], body["summary"]
        if system is not None:
            text = _carried(system)
            if text is not None or not self._plaintext:
                place = self._place("system", session_id)
                body["system"] = self.keys.decrypt(place, text or "").decode()
        if summary is not None and not (self._plaintext and not summary["text"].startswith(MARK)):
            plain = self.keys.decrypt(self._summary(session_id, summary), summary["text"])
            summary["text"], summary["redo_text"] = json.loads(plain)
        return compact_json(body)

    def _decoded_key(self, doc: k.Document) -> str:
        name, digest, *rest = json.loads(doc.body)
        if self._plaintext and not digest.startswith(MARK):
            return doc.body
        plain = self.keys.decrypt(self._place("key", doc.session, name), digest).decode()
        return compact_json([name, plain, *rest])

    def _features(self, segment: k.Document) -> Place:
        block = segment.collection.removeprefix(k.SEGMENT)
        return self._place("features", block, segment.owner, segment.id)

    def _decoded_features(self, segment: k.Document) -> bytes:
        """Decrypt features. Raise `Undecryptable` if the key is missing.

        For altered features, return b"". A search then finds the records by words of their texts.
        """
        data = segment.data
        if self._plaintext and not data.startswith(MARK.encode()):
            return data
        try:
            return self.keys.decrypt(self._features(segment), data)
        except Undecryptable:
            if self.keys.lacks(data):
                raise
            return b""

    def numbers(self, term: int) -> list[int]:
        """Return the word's ids in the store: one for each key, and `term` for plain text."""
        numbers = [key.blind(term) for key in self.keys.all]
        return [*numbers, term] if self._plaintext else numbers

    def _attribute(self, failures: Sequence[_Failure]) -> None:
        """Set the `damage` of each error, if the record's key has decrypted other data.

        The key is then right: only this record is damaged, and results omit it. Otherwise the key
        may be wrong, and the call fails.
        """
        for error, text, damage in failures:
            if self.keys.has_decrypted(text):
                error.damage = damage

    def _encrypt(self, place: Place, plain: bytes) -> str:
        return self.keys.current.encrypt(place, plain)

    def _carrier(self, place: Place, plain: str, *, is_system: bool) -> str:
        """Return the JSON of a message that contains another message as a ciphertext."""
        text = self._encrypt(place, plain.encode())
        return f"{{{_SYSTEM if is_system else ''}{_BEFORE}{text}{_AFTER}"

    def _place(self, kind: str, *fields: object) -> Place:
        return (kind, self._namespace, *fields)

    def _message(self, line: k.Line) -> Place:
        return self._place("message", line.session, line.seq, line.created_at)

    def _summary(self, session_id: str, summary: dict[str, Any]) -> Place:
        span = [summary[name] for name in ("upto", "redo_after", "by", "tokens")]
        return self._place("summary", session_id, *span)

    def _record(self, doc: k.Document, body: dict[str, Any]) -> Place:
        kind, _, block = doc.collection.partition(":")
        origin = (doc.id, doc.owner, doc.session, doc.first, doc.last)
        return self._place(kind, block, *origin, body["sources"], int(doc.about))


def _carried(body: object) -> str | None:
    """Return the ciphertext in a result of `EncryptedKernel._carrier`; None for any other value."""
    if not isinstance(body, str) or not body.endswith(_AFTER):
        return None
    before, mark, text = body.removesuffix(_AFTER).partition(_BEFORE)
    return text if mark and before in ("{", f"{{{_SYSTEM}") else None


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
        self._cipher = EncryptedKernel(inner.kernel, keys, namespace, plaintext)
        super().__init__(self._cipher)
        self.signing_keys = keys

    def vectors_of(self, store: VectorStore) -> VectorStore:
        """Return a vector store that encrypts with the same keys and stores records in `store`."""
        return cast("VectorStore", EncryptedVectors(store, self._cipher))


class EncryptedVectors:
    """Encrypts records for a vector store whose server searches, such as Qdrant.

    Texts and metadata are encrypted. The ids of words are replaced by ids computed with the key.
    Vectors stay readable. Calls without records go to the inner store unchanged.
    """

    def __init__(self, inner: VectorStore, cipher: EncryptedKernel) -> None:
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

        documents = [record_document(f"{k.VECTOR}{block}", record, 0) for record in records]
        encrypted = [record_from(self._cipher.encoded(doc)) for doc in documents]
        blinded = replace(features, words=[blind(terms) for terms in features.words])
        self._inner.put_vectors(block, encrypted, blinded, lease=lease)

    def search_vectors(self, block: str, owner: str, query: Query, limit: int) -> list[Hit]:
        """Search like `VectorStore.search_vectors`. Raise `Undecryptable` without the right key.

        The query contains one id of each word for each key.
        """
        hits = self._inner.search_vectors(block, owner, self._blinded(query), limit)
        pending = {} if query.pending is None else query.pending.records
        stored = [hit.record for hit in hits if pending.get(hit.record.id) is not hit.record]
        documents = [record_document(f"{k.VECTOR}{block}", record, 0) for record in stored]
        decoded = [doc for doc in self._cipher.decoded(documents) if doc is not None]
        records = undamaged_records(decoded, record_from)
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
