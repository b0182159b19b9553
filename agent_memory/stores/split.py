"""Stores with data in several databases.

`SplitStore` has system messages in a separate database, and `RoutedStore` the records of blocks.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
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
from agent_memory.stores.kernel.rules import KernelWrapper
from agent_memory.stores.kernel.vectors import KernelStore

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
        _take_keys(self, inner)


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
            record = coding.record_from(document)
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


class RoutedStore(KernelStore):
    """Stores the records and vectors of some blocks in separate databases.

        facts = open_store("sqlite:///facts.db")
        store = RoutedStore(open_store("sqlite:///memory.db"), {"extractive": facts})

    All other data and the leases are in the common database. The common database may also have
    records that were stored before their block was routed. A deletion of the block's records also
    deletes these records. A lease is checked before a write to another database. If the lease is
    lost during the write, the engine reverts the write.

    Args:
        inner: The common store. `close` closes only this store.
        routes: The store of each routed block, by the block's name.
    """

    def __init__(self, inner: Store, routes: Mapping[str, Store]) -> None:
        kernels = {block: store.kernel for block, store in routes.items()}
        super().__init__(RoutedKernel(inner.kernel, kernels))
        self._common = KernelStore(inner.kernel)
        self._routes = kernels
        _take_keys(self, inner)

    def delete_vectors(self, block: str, **which: Any) -> None:
        if block in self._routes:
            self._common.delete_vectors(block, **which)
        super().delete_vectors(block, **which)

    def all_records(self) -> Iterator[tuple[str, Record]]:
        yield from super().all_records()
        earlier = self._common.all_records()
        yield from ((block, record) for block, record in earlier if block in self._routes)


class RoutedKernel(KernelWrapper):
    """Routes the documents of blocks to other kernels."""

    def __init__(self, inner: k.Kernel, routes: Mapping[str, k.Kernel]) -> None:
        super().__init__(inner, routes.values())
        self._routes = routes

    def _of(self, at: k.DocId) -> k.Kernel:
        block = at.id if at.collection == k.BLOCKS else at.collection.partition(":")[2]
        return self._routes.get(block, self.inner)

    def commit(self, batch: k.Batch) -> k.Outcome:
        """Commit a batch in parts, one per kernel. The common kernel, with the leases, is first."""
        done = k.DONE
        for kernel in self._all:
            conditions = [
                check
                for check in batch.conditions
                if kernel is (self.inner if isinstance(check, k.LogEndsAt) else self._of(check.id))
            ]
            writes = [part for write in batch.writes for part in self._part(write, kernel)]
            if conditions or writes:
                tail = batch.tail if kernel is self.inner else ""
                outcome = kernel.commit(k.Batch(conditions, writes, tail))
                if not outcome.done:
                    return outcome
                done = outcome if tail else done
        return done

    def _part(self, write: k.Write, kernel: k.Kernel) -> Iterator[k.Write]:
        """Yield the part of a write for a kernel. The common kernel gets all deletions of facts."""
        match write:
            case k.Put(document):
                if self._of(document.key) is kernel:
                    yield write
            case k.Due(at) | k.Hold(at):
                if self._of(at) is kernel:
                    yield write
            case k.Wake(ids) | k.Delete(ids):
                own = [at for at in ids if self._is_in(at, kernel)]
                if own or (not ids and kernel is self.inner):
                    yield write._replace(ids=own)
            case k.DeleteWhere(scan):
                if self._is_in(k.DocId(scan.collection, ""), kernel):
                    yield write
            case _:
                if kernel is self.inner:
                    yield write

    def _is_in(self, at: k.DocId, kernel: k.Kernel) -> bool:
        earlier = kernel is self.inner and at.collection.startswith(k.FACT)
        return earlier or self._of(at) is kernel

    def documents(
        self, ids: Sequence[k.DocId], *, tails: bool = False, bodies: bool = True
    ) -> list[k.Document | None]:
        by_id: dict[k.DocId, k.Document | None] = {}
        for kernel in self._all:
            own = [at for at in ids if self._of(at) is kernel]
            if own:
                documents = kernel.documents(own, tails=tails, bodies=bodies)
                by_id.update(zip(own, documents, strict=True))
        return [by_id[at] for at in ids]

    def scan(self, scan: k.Scan) -> list[k.Document]:
        if scan.collection != k.BLOCKS:
            return self._of(k.DocId(scan.collection, "")).scan(scan)
        scanned = [(document, kernel) for kernel in self._all for document in kernel.scan(scan)]
        return [document for document, kernel in scanned if self._of(document.key) is kernel]

    def owners(self, collection: str, beginning: str) -> list[str]:
        return self._of(k.DocId(collection, "")).owners(collection, beginning)

    def collections(self, beginning: str) -> list[str]:
        return sorted({name for kernel in self._all for name in kernel.collections(beginning)})


def _take_keys(store: object, inner: object) -> None:
    """Copy the attributes with which an encrypted store signs receipts and encrypts vectors."""
    for name in ("signing_keys", "vectors_of"):
        if hasattr(inner, name):
            setattr(store, name, getattr(inner, name))
