"""`EncryptedStore`: any store, with what people said encrypted before it gets there."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace

from agent_memory.core.messages import Message
from agent_memory.core.records import Draft, Entry, Head, Lease, Record
from agent_memory.errors import StoreUnavailable, Undecryptable
from agent_memory.stores.base import Store, VectorStore, swaps_vectors
from agent_memory.stores.encrypted.heads import HeadSeals
from agent_memory.stores.encrypted.keys import Keys
from agent_memory.stores.encrypted.messages import MessageSeals
from agent_memory.stores.encrypted.vectors import (
    EncryptedSwappingVectors,
    EncryptedVectors,
    RecordSeals,
)
from agent_memory.stores.wrapper import StoreWrapper

logger = logging.getLogger(__name__)

_UNREADABLE_SECONDS = 600.0
_UNSEEN = Message(role="user", content="")  # before its seq is known, a store is shown no more


class EncryptedStore(EncryptedVectors, StoreWrapper):
    """Encrypts messages, system messages, summaries and the texts of records, each bound to its
    place, and keeps them in another store.

        store = EncryptedStore(open_store("sqlite:///m.db"), Keys.from_environment())
        memory = AgentMemory(store=store)

    The other store sees ids, numbers, times, vectors, and which messages are system messages. A
    session that cannot be opened any more can still be deleted by a memory over the other store.

    Args:
        inner: Keeps what was encrypted. `close` closes it too.
        keys: The keys.
        namespace: The inner store's; what is moved from one to another cannot be opened there.
        plaintext: Whether what was stored before it was encrypted may be read as it is. Whoever can
            write to the database can then put messages there; so for a time of change only.
    """

    def __init__(
        self,
        inner: Store,
        keys: Keys,
        namespace: str = "default",
        *,
        plaintext: bool = False,
    ) -> None:
        EncryptedVectors.__init__(self, inner, RecordSeals(keys, namespace, plaintext))
        StoreWrapper.__init__(self, inner)
        self._messages = MessageSeals(keys, namespace, plaintext)
        self._heads = HeadSeals(keys, namespace, plaintext)

    def vectors_of(self, store: VectorStore) -> EncryptedVectors:
        """A vector store of another database, encrypted with the same keys."""
        if swaps_vectors(store):
            return EncryptedSwappingVectors(store, self._records)
        return EncryptedVectors(store, self._records)

    def append(self, session_id: str, drafts: Sequence[Draft], user_id: str | None = None) -> Head:
        """See `SessionStore.append`.

        Raises:
            Undecryptable: The session's system message or its summary cannot be opened.
            StoreUnavailable: So it is with the store, or with the keys; if the messages were stored
                all the same, it says so.
        """
        if not self._heads.knows(session_id):  # who is refused must have stored nothing
            self.head(session_id)
        sealed = [self._sealed(session_id, draft) for draft in drafts]
        after = self._inner.append(session_id, sealed, user_id)
        try:
            return self._heads.opened(after)
        except (Undecryptable, StoreUnavailable) as error:
            # another process has put something there meanwhile
            raise type(error)(f"{error} The new messages were stored.") from error

    def head(self, session_id: str) -> Head | None:
        """See `SessionStore.head`.

        Raises:
            Undecryptable: Its system message or its summary cannot be opened.
        """
        head = self._inner.head(session_id)
        return None if head is None else self._heads.opened(head)

    def read(self, session_id: str, *, after: int = 0, limit: int | None = None) -> list[Entry]:
        """See `SessionStore.read`.

        Raises:
            Undecryptable: A message cannot be opened.
        """
        found = self._inner.read(session_id, after=after, limit=limit)
        return [self._messages.opened(entry) for entry in found]

    def pick(self, session_id: str, seqs: Sequence[int]) -> list[Entry]:
        """See `SessionStore.pick`.

        Raises:
            Undecryptable: A message cannot be opened.
        """
        return [self._messages.opened(entry) for entry in self._inner.pick(session_id, seqs)]

    def move(self, head: Head, *, lease: Lease | None = None) -> Head | None:
        """See `SessionStore.move`."""
        return _as_given(self._inner.move(self._heads.sealed(head), lease=lease), head)

    def rewrite(
        self,
        head: Head,
        after: int,
        entries: Sequence[Entry] = (),
        *,
        lease: Lease | None = None,
    ) -> Head | None:
        """See `SessionStore.rewrite`."""
        sealed = [self._messages.sealed_entry(entry) for entry in entries]
        stored = self._inner.rewrite(self._heads.sealed(head), after, sealed, lease=lease)
        return _as_given(stored, head)

    def due(self, limit: int = 100) -> list[Head]:
        """See `SessionStore.due`. A session that cannot be opened is put off, with a warning."""
        heads: list[Head] = []
        for head in self._inner.due(limit):
            try:
                heads.append(self._heads.opened(head))
            except Undecryptable as error:  # it must not keep the other sessions waiting
                logger.warning("session %r is left for later: %s", head.session_id, error)
                self._inner.schedule(head, _UNREADABLE_SECONDS)
        return heads

    def delete(self, session_id: str, *, lease: Lease | None = None) -> None:
        """See `SessionStore.delete`."""
        self._inner.delete(session_id, lease=lease)
        self._heads.forget(session_id)

    def sessions(
        self, *, user_id: str | None = None, limit: int = 100, after: str | None = None
    ) -> list[Head]:
        """See `SessionStore.sessions`.

        Raises:
            Undecryptable: The system message or the summary of one cannot be opened.
        """
        found = self._inner.sessions(user_id=user_id, limit=limit, after=after)
        return [self._heads.opened(head) for head in found]

    def put_records(
        self,
        block: str,
        records: Sequence[Record],
        *,
        replacing: tuple[str, int, int] | None = None,
        lease: Lease | None = None,
    ) -> None:
        """See `RecordStore.put_records`."""
        sealed = [self._records.sealed("fact", block, record) for record in records]
        self._inner.put_records(block, sealed, replacing=replacing, lease=lease)

    def records(self, block: str, owner: str) -> list[Record]:
        """See `RecordStore.records`.

        Raises:
            Undecryptable: One of them cannot be opened.
        """
        found = self._inner.records(block, owner)
        return [self._records.opened("fact", block, record) for record in found]

    def all_records(self) -> Iterator[tuple[str, Record]]:
        """See `RecordStore.all_records`.

        Raises:
            Undecryptable: One of them cannot be opened.
        """
        for block, record in self._inner.all_records():
            yield block, self._records.opened("fact", block, record)

    def _sealed(self, session_id: str, draft: Draft) -> Draft:
        message = draft.message
        shown = self._heads.system(session_id, message) if message.is_system else _UNSEEN
        return self._messages.sealed(session_id, draft, shown)


def _as_given(stored: Head | None, given: Head) -> Head | None:
    """A head that was just written, with what was sealed of it as it was before."""
    if stored is None:
        return None
    system = None if given.system is None else given.system.detached()
    return replace(stored, system=system, summary=given.summary)
