"""`SplitStore`: system messages in a store of their own."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from uuid import uuid4

from agent_memory.core.cache import Cache
from agent_memory.core.idempotency import Appended, Once
from agent_memory.core.messages import Message
from agent_memory.core.records import Draft, Entry, Head, Lease, Record, Scope
from agent_memory.core.redaction import EMPTY_SYSTEM, stands_nowhere
from agent_memory.core.system_collections import SYSTEM
from agent_memory.errors import StoreError
from agent_memory.stores.base import Store
from agent_memory.stores.damage import UNREADABLE_SECONDS, head_or_rest
from agent_memory.stores.wrapper import StoreWrapper

logger = logging.getLogger(__name__)

_PLACE = SYSTEM.name
_FORMAT = "agent-memory.elsewhere"
_REFERENCE = f'{{"role":"system","format":"{_FORMAT}","raw":{{"id":"%s"}}}}'
_MOST_CACHED = 4096


@dataclass(slots=True)
class _CachedHead:
    """The cached system messages of a session.

    Attributes:
        texts: Their JSON, by the ids of their records.
        ids: The ids of their records, by their JSON.
        begun: The creation time of the session in which they were read.
    """

    texts: dict[str, str] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)
    begun: datetime | None = None

    def add(self, record_id: str, text: str) -> None:
        self.texts[record_id] = text
        self.ids[text] = record_id


class SplitStore(StoreWrapper):
    """Stores system messages in one store, and all other data in another.

        store = SplitStore(open_store("postgresql://..."), open_store("sqlite:///prompts.db"))
        memory = AgentMemory(store=store)

    The log and the head hold a reference to each system message. A message is written before its
    references, and deleted with its session. To encrypt, wrap each of the two stores.

    Args:
        inner: The store of all other data. `close` closes both.
        system: The store of system messages, in the same namespace.
    """

    def __init__(self, inner: Store, system: Store) -> None:
        super().__init__(inner)
        self._system = system
        self._cache: Cache[str, _CachedHead] = Cache(_MOST_CACHED)

    @property
    def remote(self) -> bool:
        return self._inner.remote or self._system.remote

    def append(
        self,
        session_id: str,
        drafts: Sequence[Draft],
        user_id: str | None = None,
        *,
        within: float = 0.0,
    ) -> Head:
        cached, referring = self._ready(session_id, drafts)
        head = self._inner.append(session_id, referring, user_id, within=within)
        return self._appended(cached, referring, head)

    def append_once(
        self,
        session_id: str,
        drafts: Sequence[Draft],
        once: Once,
        user_id: str | None = None,
        *,
        within: float = 0.0,
    ) -> Appended:
        cached, referring = self._ready(session_id, drafts)
        appended = self._inner.append_once(session_id, referring, once, user_id, within=within)
        if not appended.places:
            return appended._replace(head=self._opened(appended.head))
        return appended._replace(head=self._appended(cached, referring, appended.head))

    def _ready(
        self, session_id: str, drafts: Sequence[Draft]
    ) -> tuple[_CachedHead, Sequence[Draft]]:
        # Read first, because an unavailable system message must stop the append, not its result.
        cached = self._cache.get(session_id) or self._load(session_id)
        return cached, [self._referring(session_id, draft) for draft in drafts]

    def _appended(self, cached: _CachedHead, referring: Sequence[Draft], head: Head) -> Head:
        if cached.begun != head.created_at:
            # A deletion may have come between the written message and its reference.
            self._write_again(head.session_id, referring)
        try:
            return self._opened(head)
        except StoreError as error:  # another process has just appended another system message
            raise type(error)(f"{error} The new messages were stored.") from error

    def head(self, session_id: str) -> Head | None:
        """Return the head with its system message; see `SessionStore.head`.

        Raises:
            StoreError: The store of system messages does not have its system message.
        """
        head = self._inner.head(session_id)
        return None if head is None else self._opened(head)

    def read(self, session_id: str, *, after: int = 0, limit: int | None = None) -> list[Entry]:
        """Return entries with their system messages; raises as `head` does."""
        entries = self._inner.read(session_id, after=after, limit=limit)
        return [self._entry(entry) for entry in entries]

    def pick(self, session_id: str, seqs: Sequence[int]) -> list[Entry]:
        """Return entries with their system messages; raises as `head` does."""
        return [self._entry(entry) for entry in self._inner.pick(session_id, seqs)]

    def tails(
        self, block: str, session_ids: Collection[str], *, before: int, limit: int
    ) -> list[Entry]:
        """Return entries with their system messages; raises as `head` does."""
        entries = self._inner.tails(block, session_ids, before=before, limit=limit)
        return [self._entry(entry) for entry in entries]

    def move(self, head: Head, *, lease: Lease | None = None) -> Head | None:
        moved = self._inner.move(self._closed(head), lease=lease)
        return None if moved is None else self._opened(moved)

    def rewrite(
        self,
        head: Head,
        after: int,
        entries: Sequence[Entry] = (),
        *,
        lease: Lease | None = None,
    ) -> Head | None:
        cached = self._cache.get(head.session_id)
        if head.version == 0 and cached is not None:
            self._cache.drop(head.session_id)  # of an earlier session with this id
        referring = [self._closed_entry(entry) for entry in entries]
        self._empty(entries)
        stored = self._inner.rewrite(self._closed(head), after, referring, lease=lease)
        return None if stored is None else self._opened(stored)

    def due(self, limit: int = 100) -> list[Head]:
        """Return due sessions. A session whose system message is missing is postponed."""
        heads: list[Head] = []
        for head in self._inner.due(limit):
            try:
                heads.append(self._opened(head))
            except StoreError as error:  # it must not delay the other sessions
                logger.warning("session %r is postponed: %s", head.session_id, error)
                self._inner.schedule(head, UNREADABLE_SECONDS)
        return heads

    def delete(self, session_id: str, *, lease: Lease | None = None) -> None:
        before = head_or_rest(self._inner, session_id)
        if before is not None:
            records = self._system.records(_PLACE, _owner(session_id))
            now = head_or_rest(self._inner, session_id)
            # If the creation time differs, a new session exists, and the records may be its own.
            if now is not None and now.created_at == before.created_at:
                for record in records:
                    self._system.delete_records(_PLACE, record_id=record.id)
        self._inner.delete(session_id, lease=lease)
        self._cache.drop(session_id)

    def secure_erase(self) -> None:
        self._inner.secure_erase()
        self._system.secure_erase()

    def sync(self) -> None:
        self._inner.sync()
        self._system.sync()

    def sessions(
        self, *, user_id: str | None = None, limit: int = 100, after: str | None = None
    ) -> list[Head]:
        """Return heads with their system messages; raises as `head` does."""
        heads = self._inner.sessions(user_id=user_id, limit=limit, after=after)
        return [self._opened(head) for head in heads]

    def close(self) -> None:
        self._inner.close()
        self._system.close()

    def _opened(self, head: Head) -> Head:
        cached = self._cache.get(head.session_id)
        if cached is not None:
            if cached.begun not in (None, head.created_at):
                self._cache.drop(head.session_id)  # the session was deleted and created again
            else:
                cached.begun = head.created_at
        if (
            head.system is None or head.deleting
        ):  # the system message of a deleted session may be gone
            return head
        return replace(head, system=self._message(head.session_id, head.system))

    def _entry(self, entry: Entry) -> Entry:
        if _referred(entry.message) is None:
            return entry
        return replace(entry, message=self._message(entry.session_id, entry.message))

    def _message(self, session_id: str, reference: Message) -> Message:
        record_id = _referred(reference)
        if record_id is None:  # it was appended before the stores were split
            return reference
        cached = self._cache.get(session_id)
        if cached is None or record_id not in cached.texts:
            cached = self._load(session_id)
        if record_id not in cached.texts:
            raise StoreError(
                f"The system message of session {session_id!r} is not in the store of system "
                "messages. Set the `system_store` that was configured when it was stored."
            )
        return Message.from_json(cached.texts[record_id], reference.created_at)

    def _closed(self, head: Head) -> Head:
        if head.system is None or _referred(head.system) is not None:
            return head
        return replace(head, system=self._reference(head.session_id, head.system))

    def _closed_entry(self, entry: Entry) -> Entry:
        if not entry.message.is_system or _referred(entry.message) is not None:
            return entry
        return replace(entry, message=self._reference(entry.session_id, entry.message))

    def _referring(self, session_id: str, draft: Draft) -> Draft:
        if not draft.message.is_system:
            return draft
        reference = self._reference(session_id, draft.message)
        return replace(draft, message=reference)  # `placed` belongs to the log

    def _reference(self, session_id: str, message: Message) -> Message:
        """Return the reference to a system message, and write the message if it is new."""
        cached = self._cache.get(session_id) or self._load(session_id)
        text = message.to_json()
        record_id = cached.ids.get(text)
        if record_id is None:
            record_id = uuid4().hex
            self._write(session_id, record_id, text)
            cached.add(record_id, text)
        return Message.from_json(_REFERENCE % record_id, message.created_at)

    def _write(self, session_id: str, record_id: str, text: str) -> None:
        record = Record(
            id=record_id,
            owner=_owner(session_id),
            session_id=session_id,
            first=0,
            last=0,
            text=text,
            sources=(),
            created_at=datetime.now(UTC),
        )
        self._system.put_records(_PLACE, [record])

    def _empty(self, entries: Sequence[Entry]) -> None:
        """Erase the texts of system messages that redacted ones replace.

        Their records stay, because other processes may have cached them and refer to them again.
        """
        seqs = [entry.seq for entry in entries if stands_nowhere(entry.message)]
        for entry in self._inner.pick(entries[0].session_id, seqs) if seqs else []:
            record_id = _referred(entry.message)
            if record_id is not None:
                self._write(entry.session_id, record_id, EMPTY_SYSTEM.to_json())
                self._cache.drop(entry.session_id)

    def _write_again(self, session_id: str, drafts: Sequence[Draft]) -> None:
        cached = self._cache.get(session_id) or _CachedHead()
        ids = {_referred(draft.message) for draft in drafts}
        existing_ids = {record.id for record in self._system.records(_PLACE, _owner(session_id))}
        for record_id, text in list(cached.texts.items()):
            if record_id in ids - existing_ids:
                self._write(session_id, record_id, text)

    def _load(self, session_id: str) -> _CachedHead:
        cached = _CachedHead()
        for record in self._system.records(_PLACE, _owner(session_id)):
            cached.add(record.id, record.text)
        return self._cache.put(session_id, cached)


def _owner(session_id: str) -> str:
    return Scope(None, session_id).owner


def _referred(message: Message) -> str | None:
    """Return the record id in a reference; None for another message."""
    record_id = (message.raw or {}).get("id") if message.format == _FORMAT else None
    return record_id if isinstance(record_id, str) else None
