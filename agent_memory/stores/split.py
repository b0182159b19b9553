"""`SplitStore` stores system messages in a separate database."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple
from uuid import uuid4

from agent_memory.core.cache import Cache
from agent_memory.core.messages import SYSTEM_ROLES, Message, compact_json
from agent_memory.core.records import Record, Scope
from agent_memory.core.redaction import EMPTY_SYSTEM, stands_nowhere
from agent_memory.core.system_collections import SYSTEM
from agent_memory.errors import Damaged, StoreUnavailable
from agent_memory.stores.base import Store
from agent_memory.stores.kernel import coding
from agent_memory.stores.kernel import contract as k
from agent_memory.stores.kernel.vectors import KernelStore
from agent_memory.stores.kernel.wrapping import KernelWrapper, take_keys

_PLACE = f"{k.FACT}{SYSTEM.name}"
_FORMAT = "agent-memory.elsewhere"
_BEFORE, _AFTER = '{"role":"system","raw":{"id":"', f'"}},"format":"{_FORMAT}"}}'
_MOST_CACHED = 4096


class SplitStore(KernelStore):
    """Stores system messages in one database, and all other data in another.

        store = SplitStore(open_store("postgresql://..."), open_store("sqlite:///prompts.db"))
        memory = AgentMemory(store=store)

    The log and the head contain references to system messages. A message is written before its
    references, and deleted with its session. To encrypt, wrap each store in an `EncryptedStore`.

    Args:
        inner: The store of all other data. `close` closes both stores.
        system: The store of system messages, opened with the same namespace.
    """

    def __init__(self, inner: Store, system: Store) -> None:
        super().__init__(SplitKernel(inner.kernel, system.kernel))
        take_keys(self, inner)


class _Messages(NamedTuple):
    """The cached system messages of a session."""

    begun: int  # the creation time of the session, in microseconds; 0 if unknown
    texts: dict[str, str]  # the JSON of each message, by the id of its record
    ids: dict[str, str]  # the id of each message's record, by the JSON of the message

    def add(self, record_id: str, text: str) -> None:
        self.texts[record_id] = text
        self.ids[text] = record_id


class SplitKernel(KernelWrapper):
    """Replaces system messages by references."""

    def __init__(self, inner: k.Kernel, system: k.Kernel) -> None:
        super().__init__(inner, [system])
        self._system = system
        self._cache: Cache[str, _Messages] = Cache(_MOST_CACHED)

    def commit(self, batch: k.Batch) -> k.Outcome:
        heads = {it.id for it in batch.conditions if isinstance(it, k.Missing)}
        begun = [at.id for at in heads if at.collection == k.HEAD]
        gone = [at for it in batch.writes if isinstance(it, k.Delete) for at in it.ids]
        ended = [at for at in gone if at.collection == k.HEAD]
        if begun or ended:
            before = self.inner.documents(ended, bodies=False)
            records = [self._scan(at.id, names=True) for at in ended]
            outcome = self.inner.commit(k.Batch(batch.conditions, []))
            if not outcome.done:
                return self._outcome(outcome)
            for session in begun:
                self._cache.put(session, _Messages(0, {}, {}))  # drops an earlier session's data
            self._delete(before, records)
        self._empty(batch)
        outcome = super().commit(batch)
        if outcome.done:
            for session in begun:
                # a deletion in another process may have removed the messages
                self._restore(session)
        return outcome

    def _delete(
        self, before: Sequence[k.Document | None], records: Sequence[Sequence[k.Document]]
    ) -> None:
        """Delete the messages of sessions that were not deleted or created again since `before`."""
        now = self.inner.documents([head.key for head in before if head is not None], bodies=False)
        current = {(head.id, head.first) for head in now if head is not None}
        for head, own in zip(before, records, strict=True):
            if head is not None and own and (head.id, head.first) in current:
                self._system.commit(k.Batch([], [k.Delete([document.key for document in own])]))
                self._cache.drop(head.id)

    def _empty(self, batch: k.Batch) -> None:
        """Erase the texts of system messages that a batch replaces by redacted messages.

        The records stay, because other processes may have cached their ids and use the ids again.
        """
        if not any(isinstance(write, k.Truncate) for write in batch.writes):
            return
        lines = [line for it in batch.writes if isinstance(it, k.Append) for line in it.lines]
        seqs = [line.seq for line in lines if _is_redacted(line)]
        for line in self.inner.lines([k.Part(lines[0].session, seqs=seqs)]) if seqs else []:
            record_id = _referred(line.body)
            if record_id is not None:
                self._write(line.session, record_id, EMPTY_SYSTEM.to_json())
                self._cache.drop(line.session)

    def encoded(self, document: k.Document) -> k.Document:
        if document.collection != k.HEAD:
            return document
        self._messages(document)
        body = dict[str, Any](json.loads(document.body or '{"system":null}'))
        if body["system"] is None:
            return document
        body["system"] = self._reference(document.id, body["system"])
        return document._replace(body=compact_json(body))

    def encoded_line(self, line: k.Line) -> k.Line:
        if line.role not in SYSTEM_ROLES and (line.role or not _message_of(line).is_system):
            return line
        text = line.body or compact_json({"role": line.role, "content": line.text})
        return line._replace(role="system", text="", body=self._reference(line.session, text))

    def decoded(self, documents: Sequence[k.Document | None]) -> list[k.Document | None]:
        return [document and self._decoded_head(document) for document in documents]

    def _decoded_head(self, document: k.Document) -> k.Document:
        if document.collection != k.HEAD:
            return document
        messages = self._messages(document)
        if _FORMAT not in document.body:
            return document
        try:
            body = json.loads(document.body)
        except ValueError:
            return document  # the caller decodes the body, and raises the error
        record_id = _referred(body.get("system"))
        if record_id is None or (record_id not in messages.texts and coding.is_deleting(document)):
            return document  # during the session's deletion, its message may be deleted already
        text = self._text(document.id, record_id)
        if isinstance(text, k.Unreadable):
            return document._replace(body=text)
        return document._replace(body=compact_json({**body, "system": text}))

    def decoded_lines(self, lines: Sequence[k.Line]) -> list[k.Line]:
        decoded: list[k.Line] = []
        for line in lines:
            record_id = _referred(line.body)
            if record_id is not None:
                line = line._replace(body=self._text(line.session, record_id))
            decoded.append(line)
        return decoded

    def close(self) -> None:
        self.inner.close()
        self._system.close()

    def _messages(self, head: k.Document) -> _Messages:
        """Return a session's cached messages. Drop messages of an earlier session with this id."""
        cached = self._cache.get(head.id)
        if cached is not None and cached.begun in (0, head.first):
            return self._cache.put(head.id, cached._replace(begun=head.first))
        return self._cache.put(head.id, _Messages(head.first, {}, {}))

    def _text(self, session_id: str, record_id: str) -> str:
        """Return a message's JSON by its record id; an `Unreadable` if it cannot be read."""
        cached = self._cache.get(session_id)
        try:
            if cached is None or record_id not in cached.texts:
                cached = self._load(session_id)
        except StoreUnavailable as error:
            return k.Unreadable.of(error)
        if record_id in cached.texts:
            return cached.texts[record_id]
        return k.Unreadable.of(
            Damaged(
                f"The system message of session {session_id!r} is not in the store of system "
                "messages. Set the `system_store` that was configured when the message was stored."
            )
        )

    def _reference(self, session_id: str, text: str) -> str:
        """Return a reference to a message. Write the message first if it is not stored."""
        if _referred(text) is not None:
            return text
        cached = self._cache.get(session_id)
        if cached is None:
            cached = self._load(session_id)
        record_id = cached.ids.get(text)
        if record_id is None:
            record_id = uuid4().hex
            self._write(session_id, record_id, text)
            cached.add(record_id, text)
        return f"{_BEFORE}{record_id}{_AFTER}"

    def _write(self, session_id: str, record_id: str, text: str) -> None:
        owner, now = _owner(session_id), datetime.now(UTC)
        record = Record(record_id, owner, session_id, 0, 0, text, (), now)
        self._system.commit(k.Batch([], [k.Put(coding.record_document(_PLACE, record, 0))]))

    def _restore(self, session_id: str) -> None:
        """Write a session's cached messages again if they are no longer stored."""
        cached = self._cache.get(session_id)
        if cached is not None and cached.texts:
            stored = {document.id for document in self._scan(session_id, names=True)}
            for record_id in cached.texts.keys() - stored:
                self._write(session_id, record_id, cached.texts[record_id])

    def _load(self, session_id: str) -> _Messages:
        cached = self._cache.get(session_id)
        messages = _Messages(0 if cached is None else cached.begun, {}, {})
        for document in self._scan(session_id):
            record = coding.record_from(document, "fact", SYSTEM.name)
            messages.add(record.id, record.text)
        return self._cache.put(session_id, messages)

    def _scan(self, session_id: str, *, names: bool = False) -> list[k.Document]:
        return self._system.scan(k.Scan(_PLACE, _owner(session_id), names=names))


def _owner(session_id: str) -> str:
    return Scope(None, session_id).owner


def _message_of(line: k.Line) -> Message:
    return Message.from_json(line.body, coding.from_micros(line.created_at))


def _is_redacted(line: k.Line) -> bool:
    return '"deleted"' in line.body and stands_nowhere(_message_of(line))


def _referred(body: object) -> str | None:
    if not isinstance(body, str) or not (body.startswith(_BEFORE) and body.endswith(_AFTER)):
        return None
    return body.removeprefix(_BEFORE).removesuffix(_AFTER)
