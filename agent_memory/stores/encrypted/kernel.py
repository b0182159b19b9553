"""`Cipher` encrypts lines and documents. `EncryptedKernel` applies a cipher to another kernel.

These are encrypted as one value each: a message, a system message, a summary, the text and metadata
of a record, the digests of an idempotency key, and search features. Other fields stay readable. A
ciphertext decrypts only with the fields that identify its record, such as session and seq.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from agent_memory.core.damage import Damage
from agent_memory.core.formats.registry import ENCRYPTED
from agent_memory.core.limits import UNREADABLE
from agent_memory.core.messages import SYSTEM_ROLES, Message, compact_json
from agent_memory.core.system_collections import PLAIN
from agent_memory.errors import Undecryptable
from agent_memory.stores.encrypted.keys import Keys, Place
from agent_memory.stores.kernel.coding import FACT, HEAD, KEY, MARK, SEGMENT, VECTOR, from_micros
from agent_memory.stores.kernel.contract import Document, Kernel, Line, Unreadable
from agent_memory.stores.kernel.wrapping import KernelWrapper

_BEFORE, _AFTER = '"raw":{"sealed":"', f'"}},"format":"{ENCRYPTED}"}}'
_SYSTEM = '"role":"system",'
_PLAIN = {f"{FACT}{collection.name}" for collection in PLAIN}

_Failure = tuple[Undecryptable, str, Damage]
"""An error, the ciphertext that was not decrypted, and the damage to report for the record."""


class Cipher:
    """Encrypts the content of lines and documents. With `plaintext`, reads plain content too."""

    def __init__(self, keys: Keys, namespace: str, plaintext: bool = False) -> None:
        self.keys = keys
        self._namespace = namespace
        self._plaintext = plaintext

    def encoded_line(self, line: Line) -> Line:
        """Encrypt a message. The line still shows whether it is a system message."""
        plain = line.body or compact_json({"role": line.role, "content": line.text})
        is_system = line.role in SYSTEM_ROLES
        if not line.role:
            message = Message.from_json(line.body, from_micros(line.created_at))
            is_system = message.is_system
        body = self._carrier(self._message(line), plain, is_system=is_system)
        return line._replace(role="system" if is_system else "", text="", body=body)

    def decoded_lines(self, lines: Sequence[Line]) -> list[Line]:
        decoded: list[Line] = []
        failures: list[_Failure] = []
        for line in lines:
            text = _carried(line.body)
            if text is None and self._plaintext:
                decoded.append(line)
                continue
            body: str
            try:
                body = self.keys.open(self._message(line), text or "").decode()
            except Undecryptable as error:
                body = Unreadable.of(error)
                damage = Damage("message", line.session, line.seq)
                failures.append((error, text or "", damage))
            decoded.append(line._replace(body=body))
        self._attribute(failures)
        return decoded

    def encoded(self, document: Document) -> Document:
        collection = document.collection
        if collection in _PLAIN:
            return document
        if collection.startswith((FACT, VECTOR)):
            body = json.loads(document.body)
            plain = compact_json([body["text"], body["metadata"]]).encode()
            body |= {"text": self._seal(self._record(document, body), plain), "metadata": {}}
        elif collection == HEAD and document.body:
            body = self._encoded_head(document.id, json.loads(document.body))
        elif collection == KEY:
            name, digest, *rest = json.loads(document.body)
            place = self._place("key", document.session, name)
            body = [name, self._seal(place, digest.encode()), *rest]
        elif collection.startswith(SEGMENT):
            place = self._features(document)
            return document._replace(data=self.keys.current.seal_bytes(place, document.data))
        else:
            return document
        return document._replace(body=compact_json(body))

    def decoded(self, documents: Sequence[Document | None]) -> list[Document | None]:
        failures: list[_Failure] = []
        decoded = [doc and self._decoded(doc, failures) for doc in documents]
        self._attribute(failures)
        return decoded

    def _decoded(self, doc: Document, failures: list[_Failure]) -> Document:
        collection = doc.collection
        try:
            if collection.startswith((FACT, VECTOR)):
                return doc._replace(body=self._decoded_record(doc, failures))
            if collection == HEAD and doc.body:
                return doc._replace(body=self._decoded_head(doc.id, json.loads(doc.body)))
            if collection == KEY:
                return doc._replace(body=self._decoded_key(doc))
            if collection.startswith(SEGMENT) and doc.data:
                return doc._replace(data=self._decoded_features(doc))
        except Undecryptable as error:
            return doc._replace(body=Unreadable.of(error), data=b"")
        except UNREADABLE:
            pass  # the caller also fails to decode the body, and raises an error with the place
        return doc

    def _decoded_record(self, doc: Document, failures: list[_Failure]) -> str:
        body = json.loads(doc.body)
        text = body["text"]
        if (self._plaintext or doc.collection in _PLAIN) and not text.startswith(MARK):
            return doc.body
        try:
            plain = self.keys.open(self._record(doc, body), text)
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
            text = self._seal(self._summary(session_id, summary), plain)
            body["summary"] = {**summary, "text": text, "redo_text": None}
        return body

    def _decoded_head(self, session_id: str, body: dict[str, Any]) -> str:
        system, summary = body["system"], body["summary"]
        if system is not None:
            text = _carried(system)
            if text is not None or not self._plaintext:
                place = self._place("system", session_id)
                body["system"] = self.keys.open(place, text or "").decode()
        if summary is not None and not (self._plaintext and not summary["text"].startswith(MARK)):
            plain = self.keys.open(self._summary(session_id, summary), summary["text"])
            summary["text"], summary["redo_text"] = json.loads(plain)
        return compact_json(body)

    def _decoded_key(self, doc: Document) -> str:
        name, digest, *rest = json.loads(doc.body)
        if self._plaintext and not digest.startswith(MARK):
            return doc.body
        plain = self.keys.open(self._place("key", doc.session, name), digest).decode()
        return compact_json([name, plain, *rest])

    def _features(self, segment: Document) -> Place:
        block = segment.collection.removeprefix(SEGMENT)
        return self._place("features", block, segment.owner, segment.id)

    def _decoded_features(self, segment: Document) -> bytes:
        """Decrypt features. Raise `Undecryptable` if the key is missing.

        For altered features, return b"". A search then finds the records by words of their texts.
        """
        data = segment.data
        if self._plaintext and not data.startswith(MARK.encode()):
            return data
        try:
            return self.keys.open(self._features(segment), data)
        except Undecryptable:
            if self.keys.lacks(data):
                raise
            return b""

    def numbers(self, term: int) -> list[int]:
        """Return the word's ids in the store: one for each key, and `term` for plain text."""
        numbers = [key.blind(term) for key in self.keys.known]
        return [*numbers, term] if self._plaintext else numbers

    def _attribute(self, failures: Sequence[_Failure]) -> None:
        """Set the `damage` of each error, if the record's key has decrypted other data.

        The key is then right: only this record is damaged, and results omit it. Otherwise the key
        may be wrong, and the call fails.
        """
        for error, text, damage in failures:
            if self.keys.has_opened(text):
                error.damage = damage

    def _seal(self, place: Place, plain: bytes) -> str:
        return self.keys.current.seal(place, plain)

    def _carrier(self, place: Place, plain: str, *, is_system: bool) -> str:
        """Return the JSON of a message that contains another message as a ciphertext."""
        text = self._seal(place, plain.encode())
        return f"{{{_SYSTEM if is_system else ''}{_BEFORE}{text}{_AFTER}"

    def _place(self, kind: str, *fields: object) -> Place:
        return (kind, self._namespace, *fields)

    def _message(self, line: Line) -> Place:
        return self._place("message", line.session, line.seq, line.created_at)

    def _summary(self, session_id: str, summary: dict[str, Any]) -> Place:
        span = [summary[name] for name in ("upto", "redo_after", "by", "tokens")]
        return self._place("summary", session_id, *span)

    def _record(self, doc: Document, body: dict[str, Any]) -> Place:
        kind, _, block = doc.collection.partition(":")
        origin = (doc.id, doc.owner, doc.session, doc.first, doc.last)
        return self._place(kind, block, *origin, body["sources"], int(doc.about))


def _carried(body: object) -> str | None:
    """Return the ciphertext in a result of `Cipher._carrier`; None for any other value."""
    if not isinstance(body, str) or not body.endswith(_AFTER):
        return None
    before, mark, text = body.removesuffix(_AFTER).partition(_BEFORE)
    return text if mark and before in ("{", f"{{{_SYSTEM}") else None


class EncryptedKernel(KernelWrapper):
    """Encrypts the content that another kernel stores."""

    def __init__(self, inner: Kernel, cipher: Cipher) -> None:
        super().__init__(inner)
        self._cipher = cipher

    def encoded(self, document: Document) -> Document:
        return self._cipher.encoded(document)

    def encoded_line(self, line: Line) -> Line:
        return self._cipher.encoded_line(line)

    def decoded(self, documents: Sequence[Document | None]) -> list[Document | None]:
        return self._cipher.decoded(documents)

    def decoded_lines(self, lines: Sequence[Line]) -> list[Line]:
        return self._cipher.decoded_lines(lines)
