"""`SplitStore`: system messages in a store of their own."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from uuid import uuid4

from agent_memory.core.messages import Message
from agent_memory.core.once import Appended, Once
from agent_memory.core.records import Draft, Entry, Head, Lease, Record, Scope
from agent_memory.core.redacted import EMPTY_SYSTEM, stands_nowhere
from agent_memory.core.reserved import SYSTEM
from agent_memory.errors import StoreError
from agent_memory.stores.base import Store
from agent_memory.stores.damage import UNREADABLE_SECONDS, head_or_rest
from agent_memory.stores.wrapper import StoreWrapper

logger = logging.getLogger(__name__)

_PLACE = SYSTEM.name
_FORMAT = "agent-memory.elsewhere"
_REFERENCE = f'{{"role":"system","format":"{_FORMAT}","raw":{{"id":"%s"}}}}'
_MOST_KNOWN = 4096


@dataclass(slots=True)
class _CachedHead:
    """What is known of a session's system messages.

    Attributes:
        texts: Their JSON, by the ids of their records.
        ids: The ids of their records, by their JSON.
        begun: When the session began under which they were seen.
    """

    texts: dict[str, str] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)
    begun: datetime | None = None

    def add(self, record_id: str, text: str) -> None:
        self.texts[record_id] = text
        self.ids[text] = record_id


class SplitStore(StoreWrapper):
    """Keeps system messages in one store, all else in another.

        store = SplitStore(open_store("postgresql://..."), open_store("sqlite:///prompts.db"))
        memory = AgentMemory(store=store)

    The log and the head hold a reference to each. A system message is written before what refers to
    it, and removed with its session. To encrypt, wrap each of the two.

    Args:
        inner: The store of all else. `close` closes both.
        system: The store of system messages, of the same namespace.
    """

    def __init__(self, inner: Store, system: Store) -> None:
        super().__init__(inner)
        self._system = system
        self._known: dict[str, _CachedHead] = {}

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
        known, referring = self._ready(session_id, drafts)
        head = self._inner.append(session_id, referring, user_id, within=within)
        return self._appended(known, referring, head)

    def append_once(
        self,
        session_id: str,
        drafts: Sequence[Draft],
        once: Once,
        user_id: str | None = None,
        *,
        within: float = 0.0,
    ) -> Appended:
        known, referring = self._ready(session_id, drafts)
        done = self._inner.append_once(session_id, referring, once, user_id, within=within)
        if not done.places:
            return done._replace(head=self._opened(done.head))
        return done._replace(head=self._appended(known, referring, done.head))

    def _ready(
        self, session_id: str, drafts: Sequence[Draft]
    ) -> tuple[_CachedHead, Sequence[Draft]]:
        # read first: what cannot be had must stop the append, not its answer
        known = self._known.get(session_id) or self._load(session_id)
        return known, [self._referring(session_id, draft) for draft in drafts]

    def _appended(self, known: _CachedHead, referring: Sequence[Draft], head: Head) -> Head:
        if known.begun != head.created_at:
            # a deletion may have passed between what was written here and what refers to it
            self._write_again(head.session_id, referring)
        try:
            return self._opened(head)
        except StoreError as error:  # another process has just said another one
            raise type(error)(f"{error} The new messages were stored.") from error

    def head(self, session_id: str) -> Head | None:
        """See `SessionStore.head`.

        Raises:
            StoreError: The store of system messages does not have its system message.
        """
        head = self._inner.head(session_id)
        return None if head is None else self._opened(head)

    def read(self, session_id: str, *, after: int = 0, limit: int | None = None) -> list[Entry]:
        """See `SessionStore.read`; as `head`."""
        found = self._inner.read(session_id, after=after, limit=limit)
        return [self._entry(entry) for entry in found]

    def pick(self, session_id: str, seqs: Sequence[int]) -> list[Entry]:
        """See `SessionStore.pick`; as `head`."""
        return [self._entry(entry) for entry in self._inner.pick(session_id, seqs)]

    def tails(
        self, block: str, session_ids: Collection[str], *, before: int, limit: int
    ) -> list[Entry]:
        """See `SessionStore.tails`; as `head`."""
        found = self._inner.tails(block, session_ids, before=before, limit=limit)
        return [self._entry(entry) for entry in found]

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
        known = self._known.get(head.session_id)
        if head.version == 0 and known is not None:
            del self._known[head.session_id]  # of a session that was there before
        referring = [self._closed_entry(entry) for entry in entries]
        self._empty(entries)
        stored = self._inner.rewrite(self._closed(head), after, referring, lease=lease)
        return None if stored is None else self._opened(stored)

    def due(self, limit: int = 100) -> list[Head]:
        """See `SessionStore.due`. A session whose system message is missing is put off."""
        heads: list[Head] = []
        for head in self._inner.due(limit):
            try:
                heads.append(self._opened(head))
            except StoreError as error:  # it must not keep the other sessions waiting
                logger.warning("session %r is left for later: %s", head.session_id, error)
                self._inner.schedule(head, UNREADABLE_SECONDS)
        return heads

    def delete(self, session_id: str, *, lease: Lease | None = None) -> None:
        before = head_or_rest(self._inner, session_id)
        if before is not None:
            records = self._system.records(_PLACE, _owner(session_id))
            now = head_or_rest(self._inner, session_id)
            # else it was deleted meanwhile, and these may be of one that began in its place
            if now is not None and now.created_at == before.created_at:
                for record in records:
                    self._system.delete_records(_PLACE, record_id=record.id)
        self._inner.delete(session_id, lease=lease)
        self._known.pop(session_id, None)

    def secure_erase(self) -> None:
        self._inner.secure_erase()
        self._system.secure_erase()

    def sessions(
        self, *, user_id: str | None = None, limit: int = 100, after: str | None = None
    ) -> list[Head]:
        """See `SessionStore.sessions`; as `head`."""
        found = self._inner.sessions(user_id=user_id, limit=limit, after=after)
        return [self._opened(head) for head in found]

    def close(self) -> None:
        self._inner.close()
        self._system.close()

    def _opened(self, head: Head) -> Head:
        known = self._known.get(head.session_id)
        if known is not None:
            if known.begun not in (None, head.created_at):
                del self._known[head.session_id]  # it was deleted, and has begun anew
            else:
                known.begun = head.created_at
        if head.system is None or head.deleting:  # of a deleted one its system message may be gone
            return head
        return replace(head, system=self._message(head.session_id, head.system))

    def _entry(self, entry: Entry) -> Entry:
        if _referred(entry.message) is None:
            return entry
        return replace(entry, message=self._message(entry.session_id, entry.message))

    def _message(self, session_id: str, reference: Message) -> Message:
        record_id = _referred(reference)
        if record_id is None:  # it was said before the two were split
            return reference
        known = self._known.get(session_id)
        if known is None or record_id not in known.texts:
            known = self._load(session_id)
        if record_id not in known.texts:
            raise StoreError(
                f"The system message of session {session_id!r} is not in the store of system "
                "messages. Give the `system_store` that was configured when it was said."
            )
        return Message.from_json(known.texts[record_id], reference.created_at)

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
        return replace(draft, message=reference)  # what is `placed` is the log's own

    def _reference(self, session_id: str, message: Message) -> Message:
        """The reference to a system message, which is written if it is new for the session."""
        known = self._known.get(session_id) or self._load(session_id)
        text = message.to_json()
        record_id = known.ids.get(text)
        if record_id is None:
            record_id = uuid4().hex
            self._write(session_id, record_id, text)
            known.add(record_id, text)
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
        """Take out what system messages say in whose place others are to stand nowhere.

        Their records stay: other processes may know them by their texts, and refer to them again.
        """
        seqs = [entry.seq for entry in entries if stands_nowhere(entry.message)]
        for entry in self._inner.pick(entries[0].session_id, seqs) if seqs else []:
            record_id = _referred(entry.message)
            if record_id is not None:
                self._write(entry.session_id, record_id, EMPTY_SYSTEM.to_json())
                self._known.pop(entry.session_id, None)

    def _write_again(self, session_id: str, drafts: Sequence[Draft]) -> None:
        known = self._known.get(session_id) or _CachedHead()
        ids = {_referred(draft.message) for draft in drafts}
        there = {record.id for record in self._system.records(_PLACE, _owner(session_id))}
        for record_id, text in list(known.texts.items()):
            if record_id in ids - there:
                self._write(session_id, record_id, text)

    def _load(self, session_id: str) -> _CachedHead:
        known = _CachedHead()
        for record in self._system.records(_PLACE, _owner(session_id)):
            known.add(record.id, record.text)
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known[session_id] = known
        return known


def _owner(session_id: str) -> str:
    return Scope(None, session_id).owner


def _referred(message: Message) -> str | None:
    """The id of the record that a reference names; None for another message."""
    found = (message.raw or {}).get("id") if message.format == _FORMAT else None
    return found if isinstance(found, str) else None
