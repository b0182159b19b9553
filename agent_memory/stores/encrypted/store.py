"""`EncryptedStore`: any store, with what people said encrypted before it gets there."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from operator import attrgetter

from agent_memory.core.idempotency import Appended, KeptKey, Once
from agent_memory.core.messages import Message
from agent_memory.core.records import Draft, Entry, Head, Lease, Record
from agent_memory.errors import StoreUnavailable, Undecryptable
from agent_memory.stores.base import (
    Store,
    StoredBlocks,
    VectorStore,
    WholeDeletingStore,
    deletes_whole,
    swaps_vectors,
)
from agent_memory.stores.damage import due_of, leave_out, page_of, undamaged
from agent_memory.stores.encrypted.heads import HeadSeals
from agent_memory.stores.encrypted.keys import Keys
from agent_memory.stores.encrypted.messages import MessageSeals
from agent_memory.stores.encrypted.vectors import (
    EncryptedSwappingVectors,
    EncryptedVectors,
    RecordSeals,
    opened_of,
)
from agent_memory.stores.encrypted.write_keys import WriteKeySeals
from agent_memory.stores.wrapper import StoreWrapper

logger = logging.getLogger(__name__)

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
        plaintext: Whether texts that were stored before encryption may be read. Anybody who can
            write to the database can then add messages, so set it for a time of change only.
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
        self._keys = keys
        self._messages = MessageSeals(keys, namespace, plaintext)
        self._heads = HeadSeals(keys, namespace, plaintext)
        self._write_keys = WriteKeySeals(keys, namespace, plaintext)
        if deletes_whole(inner):
            self.blocks, self.delete_whole = inner.blocks, partial(self._delete_whole, inner)

    @property
    def signing_keys(self) -> Keys:
        return self._keys

    def vectors_of(self, store: VectorStore) -> EncryptedVectors:
        """A vector store of another database, encrypted with the same keys."""
        if swaps_vectors(store):
            return EncryptedSwappingVectors(store, self._records)
        return EncryptedVectors(store, self._records)

    def append(
        self,
        session_id: str,
        drafts: Sequence[Draft],
        user_id: str | None = None,
        *,
        within: float = 0.0,
    ) -> Head:
        """See `SessionStore.append`.

        Raises:
            Undecryptable: The session's system message or its summary cannot be opened.
            StoreUnavailable: The store or the keys cannot be reached; if the messages were stored
                all the same, it says so.
        """
        sealed = self._sealed_all(session_id, drafts)
        after = self._inner.append(session_id, sealed, user_id, within=within)
        return self._after(after)

    def append_once(
        self,
        session_id: str,
        drafts: Sequence[Draft],
        once: Once,
        user_id: str | None = None,
        *,
        within: float = 0.0,
    ) -> Appended:
        """See `SessionStore.append_once`; and `append`."""
        sealed = self._sealed_all(session_id, drafts)
        terms = self._write_keys.terms(session_id, once)
        done = self._inner.append_once(session_id, sealed, terms, user_id, within=within)
        before = done.before and self._write_keys.opened(session_id, done.before)
        head = self._after(done.head) if done.places else self._heads.opened(done.head)
        return Appended(head, done.places, before)

    def keys(self, session_id: str, names: Collection[str] | None = None) -> list[KeptKey]:
        """See `SessionStore.keys`.

        Raises:
            Undecryptable: One of them cannot be opened.
        """
        found = self._inner.keys(session_id, names)
        return [self._write_keys.opened(session_id, one) for one in found]

    def put_keys(
        self, session_id: str, keys: Sequence[KeptKey], *, lease: Lease | None = None
    ) -> None:
        """See `SessionStore.put_keys`."""
        sealed = [self._write_keys.sealed(session_id, one) for one in keys]
        self._inner.put_keys(session_id, sealed, lease=lease)

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
        try:
            return [self._messages.opened(entry) for entry in found]
        except Undecryptable:
            for entry in found:  # where one can be opened, it is not the key
                with suppress(Undecryptable):
                    self._messages.opened(entry)
        return [self._messages.opened(entry) for entry in found]

    def pick(self, session_id: str, seqs: Sequence[int]) -> list[Entry]:
        """See `SessionStore.pick`.

        Raises:
            Undecryptable: A message cannot be opened.
        """
        return [self._messages.opened(entry) for entry in self._inner.pick(session_id, seqs)]

    def tails(
        self, block: str, session_ids: Collection[str], *, before: int, limit: int
    ) -> list[Entry]:
        """See `SessionStore.tails`. A session of which a message cannot be opened is left out, with
        a warning: it must not hide what was said in others."""
        found: dict[str, list[Entry]] = {name: [] for name in session_ids}
        for entry in self._inner.tails(block, session_ids, before=before, limit=limit):
            if entry.session_id not in found:
                continue
            try:
                found[entry.session_id].append(self._messages.opened(entry))
            except Undecryptable as error:
                logger.warning("session %r is not searched: %s", entry.session_id, error)
                del found[entry.session_id]
        return [entry for entries in found.values() for entry in entries]

    def move(self, head: Head, *, lease: Lease | None = None) -> Head | None:
        return _as_given(self._inner.move(self._heads.sealed(head), lease=lease), head)

    def rewrite(
        self,
        head: Head,
        after: int,
        entries: Sequence[Entry] = (),
        *,
        lease: Lease | None = None,
    ) -> Head | None:
        sealed = [self._messages.sealed_entry(entry) for entry in entries]
        stored = self._inner.rewrite(self._heads.sealed(head), after, sealed, lease=lease)
        return _as_given(stored, head)

    def due(self, limit: int = 100) -> list[Head]:
        """See `SessionStore.due`. A session that cannot be opened is put off, with a warning."""
        return due_of(self, lambda: undamaged(self._inner.due(limit), self._heads.opened))

    def delete(self, session_id: str, *, lease: Lease | None = None) -> None:
        self._inner.delete(session_id, lease=lease)
        self._heads.forget(session_id)

    def _delete_whole(
        self,
        inner: WholeDeletingStore,
        heads: Sequence[Head],
        blocks: StoredBlocks,
        *,
        owners: Collection[str] = (),
        locks: Collection[str] = (),
        leaving: Mapping[str, Sequence[Record]] | None = None,
    ) -> bool:
        sealed = {
            block: [self._records.sealed("fact", block, record) for record in records]
            for block, records in (leaving or {}).items()
        }
        done = inner.delete_whole(heads, blocks, owners=owners, locks=locks, leaving=sealed)
        for head in heads if done else ():
            self._heads.forget(head.session_id)
        return done

    def sessions(
        self, *, user_id: str | None = None, limit: int = 100, after: str | None = None
    ) -> list[Head]:
        """See `SessionStore.sessions`. One that cannot be opened is left out, with a warning."""

        def read(last: str, most: int) -> list[Head]:
            return self._inner.sessions(user_id=user_id, limit=most, after=last or None)

        name = attrgetter("session_id")
        return page_of(read, self._heads.opened, name, after or "", limit)

    def put_records(
        self,
        block: str,
        records: Sequence[Record],
        *,
        replacing: tuple[str, int, int] | None = None,
        lease: Lease | None = None,
    ) -> None:
        sealed = [self._records.sealed("fact", block, record) for record in records]
        self._inner.put_records(block, sealed, replacing=replacing, lease=lease)

    def swap_record(self, block: str, record: Record, last: int | None) -> bool:
        return self._inner.swap_record(block, self._records.sealed("fact", block, record), last)

    def records(self, block: str, owner: str) -> list[Record]:
        """See `RecordStore.records`.

        Raises:
            Undecryptable: None of them can be opened, or a key is missing.
        """
        found = self._inner.records(block, owner)
        return opened_of(found, partial(self._records.opened, "fact", block))

    def record(self, block: str, record_id: str) -> Record | None:
        """See `RecordStore.record`.

        Raises:
            Undecryptable: It cannot be opened, or a key is missing.
        """
        found = self._inner.record(block, record_id)
        return None if found is None else self._records.opened("fact", block, found)

    def all_records(self) -> Iterator[tuple[str, Record]]:
        """See `RecordStore.all_records`.

        Raises:
            Undecryptable: A key is missing.
        """
        for block, record in self._inner.all_records():
            try:
                opened = self._records.opened("fact", block, record)
            except Undecryptable as error:
                if error.damage is None:
                    raise
                leave_out(error)
            else:
                yield block, opened

    def _sealed_all(self, session_id: str, drafts: Sequence[Draft]) -> list[Draft]:
        if not self._heads.knows(session_id):  # who is refused must have stored nothing
            self.head(session_id)
        return [self._sealed(session_id, draft) for draft in drafts]

    def _after(self, appended: Head) -> Head:
        """The head after an append."""
        try:
            return self._heads.opened(appended)
        except (Undecryptable, StoreUnavailable) as error:
            # another process has put something there meanwhile
            raise type(error)(f"{error} The new messages were stored.") from error

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
