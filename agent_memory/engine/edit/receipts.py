"""Receipts of deletions and checkpoints, and their verification against the store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Literal, NamedTuple

from agent_memory.core.damage import Damage
from agent_memory.core.receipts import Part, Receipt, digest_of, merged
from agent_memory.core.records import Head, Record, Scope
from agent_memory.core.system_collections import DELETED
from agent_memory.core.timestamps import now_utc
from agent_memory.engine.paging import all_heads, read_of
from agent_memory.engine.values.items import is_owned
from agent_memory.errors import Damaged, InvalidInput, Undecryptable, UnsupportedOperation
from agent_memory.ltm_blocks.base import record_id
from agent_memory.ltm_blocks.registry import registered
from agent_memory.models.embedders import is_remote
from agent_memory.stores.base import RecordStore
from agent_memory.stores.damage import noted

if TYPE_CHECKING:
    from agent_memory.config.settings import AgentMemoryConfig
    from agent_memory.engine.assembly import Components

BACKUPS = Part("backups", "not supported", "Earlier backups are not changed.")


class Outcome(NamedTuple):
    """A deletion's result for each place of data, and the damaged data that the deletion found.

    `unread` is None if the deletion did not search for damaged data.
    """

    parts: Sequence[Part]
    unread: Sequence[Damaged] | None = None
    has_registry: bool = True  # whether the store may list blocks with databases of their own


class Deleted:
    """The tombstones of deleted sessions and users. Each has a hash of the id, and no text."""

    def __init__(self, store: RecordStore) -> None:
        self._store = store

    def note(self, kind: str, names: Iterable[str], at: datetime) -> None:
        """Store that sessions or users were deleted at a time."""
        self._store.put_records(DELETED.name, tombstones(kind, names, at))

    def since(self, head: Head) -> datetime | None:
        """Return when the session or its user was deleted. None if it was before the session."""
        stones = [self.at("session", head.session_id), self.at("user", head.user_id)]
        return max((at for at in stones if at and at >= head.created_at), default=None)

    def at(self, kind: str, name: str | None) -> datetime | None:
        """Return when a session or a user was last deleted. None means never."""
        if name is None:
            return None
        stones = self._store.records(DELETED.name, _tombstone(kind, name).owner)
        return max((stone.created_at for stone in stones), default=None)

    def lift(self, head: Head) -> None:
        self._store.delete_records(DELETED.name, owner=_tombstone("session", head.session_id).owner)


class Receipts:
    def __init__(self, parts: Components) -> None:
        self._store, self._config = parts.store, parts.config
        self._namespace = parts.config.namespace
        self._keys = parts.services.keys  # None means that receipts are not signed
        self._reached = parts.elsewhere  # blocks whose own databases are open in this process

    def of_deletion(self, kind: Literal["session", "user"], name: str, outcome: Outcome) -> Receipt:
        receipt = Receipt(kind, name, self._namespace, now_utc(), ())
        damaged = self._unread_files() if outcome.unread is None else outcome.unread
        elsewhere = self._elsewhere() if outcome.has_registry else []
        parts = [*outcome.parts, *elsewhere, *_unread(receipt, damaged)]
        parts += [*_out_of_reach(self._config), BACKUPS]
        return self._signed(replace(receipt, parts=merged(parts)))

    def checkpoint(self, head: Head, blocks: Iterable[str]) -> Receipt:
        """Write pending data of the store to disk, and return a receipt for a session."""
        log = Part("log")
        if self._config.store == "memory://":
            log = Part("log", "not supported", "This store ends with the process.")
        parts = [log, *(_absorbed(head, name) for name in blocks)]
        self._store.sync()
        receipt = Receipt("checkpoint", head.session_id, self._namespace, now_utc(), tuple(parts))
        last = read_of(self._store, head, after=head.end - 1, limit=1)
        if head.end and not last:
            raise InvalidInput(f"Session {head.session_id!r} was deleted meanwhile.")
        if last:
            receipt = replace(receipt, end=head.end, digest=digest_of(last[0]))
        return self._signed(receipt)

    def verify(self, receipt: Receipt) -> Receipt:
        """Return the receipt with the results of its checks against the current store."""
        checks = {"session": self._session, "user": self._user, "checkpoint": self._checkpoint}
        with noted() as damaged:
            parts = [self._signature(receipt), *checks[receipt.kind](receipt)]
        parts += _unread(receipt, [*damaged, *self._unread_files()])
        if receipt.namespace != self._namespace:
            text = f"The receipt is of namespace {receipt.namespace!r}, not {self._namespace!r}."
            parts = [Part("namespace", "failed", text)]
        return replace(receipt, at=now_utc(), parts=merged(parts), signature=None)

    def _elsewhere(self) -> list[Part]:
        """Return a part for each block whose own database is not open in this process."""
        text = "The block's own database is not configured here."
        names = registered(self._store, "elsewhere").difference(self._reached)
        return [Part(f"block {name!r}", "not supported", text) for name in sorted(names)]

    def _unread_files(self) -> list[Damaged]:
        """Return an error for each file of the store that cannot be read."""
        with noted() as damaged:
            self._store.sessions(limit=1)
        return [error for error in damaged if error.damage and error.damage.kind == "file"]

    def _signed(self, receipt: Receipt) -> Receipt:
        if self._keys is None:
            return receipt
        place = ("receipt", self._namespace, receipt.signed_digest)
        return replace(receipt, signature=self._keys.current.encrypt(place, b""))

    def _signature(self, receipt: Receipt) -> Part:
        if self._keys is None:
            text = "No key is set here." if receipt.signature else "The receipt has no signature."
            return Part("signature", "not supported", text)
        if receipt.signature is None:
            return Part("signature", "failed", "The receipt has no signature.")
        try:
            place = ("receipt", self._namespace, receipt.signed_digest)
            self._keys.decrypt(place, receipt.signature)
        except Undecryptable:
            return Part(
                "signature", "failed", "The receipt was altered, or signed with another key."
            )
        return Part("signature")

    def _checkpoint(self, receipt: Receipt) -> Iterable[Part]:
        try:
            head = self._store.head(receipt.id)
            if head is None or head.end < receipt.end:
                end = 0 if head is None else head.end
                return [Part("log", "failed", f"The log ends at message {end}.")]
            if receipt.end <= head.expired:
                return [Part("log", "not supported", "The message has expired since.")]
            last = read_of(self._store, head, after=receipt.end - 1, limit=1)
        except Damaged as error:
            return [Part("log", "failed", str(error))]
        same = [digest_of(entry) for entry in last] == [receipt.digest]
        return [Part("log") if same else Part("log", "failed", "The message has changed.")]

    def _session(self, receipt: Receipt) -> Iterator[Part]:
        text = "The session still exists."
        try:
            head = self._store.head(receipt.id)
            exists = head is not None or bool(self._store.read(receipt.id, limit=1))
        except Damaged as error:
            head, exists, text = None, True, f"The session still exists. {error}"
        if head is not None and head.created_at > receipt.at:
            yield Part("log", "done", "A new session with this id has begun since.")
            return
        yield Part("log", "failed", text) if exists else Part("log")
        yield from self._left(lambda record: record.session_id == receipt.id)

    def _user(self, receipt: Receipt) -> Iterator[Part]:
        heads = list(all_heads(self._store, receipt.id))
        begun = {head.session_id for head in heads if head.created_at > receipt.at}
        old = len(heads) - len(begun)
        yield Part("log", "failed", f"Sessions that still exist: {old}.") if old else Part("log")
        owner = Scope(receipt.id).owner

        def is_left(record: Record) -> bool:
            is_new = record.session_id in begun or record.created_at > receipt.at
            return is_owned(record.owner, owner) and not is_new

        yield from self._left(is_left)

    def _left(self, is_left: Callable[[Record], bool]) -> Iterator[Part]:
        """Yield a part for each collection of the store that still has records or vectors."""
        left = Counter(name for name, record in self._store.all_records() if is_left(record))
        for name in self._store.vector_blocks():
            try:
                pages = self._store.all_vectors(name)
                left[name] += sum(is_left(record) for records, _ in pages for record in records)
            except UnsupportedOperation:  # the vectors are encrypted
                yield Part(f"vectors of {name!r}", "not supported", "Encrypted: not checked.")
        yield Part("records")
        yield from self._elsewhere()
        for name, count in sorted(left.items()):
            if count:
                yield Part(f"records of {name!r}", "failed", f"Records that still exist: {count}.")


def _unread(receipt: Receipt, damaged: Sequence[Damaged]) -> Iterator[Part]:
    """Yield a part if damaged data was skipped: "failed" if the receipt covers the data."""
    if not damaged:
        return
    damages = {str(error): error.damage for error in damaged}
    text = f"{len(damages)} records cannot be read. `agent-memory doctor` lists them."
    about = [damage for damage in damages.values() if _is_about(receipt, damage)]
    # a file's name may contain the id of another user's session
    if files := sorted(
        damage.path
        for damage in damages.values()
        if damage and damage.path and (damage in about or not damage.owners)
    ):
        text = f"{text} Look into {', '.join(files)}."
    yield Part("damaged data", "failed" if about else "not supported", text)


def _is_about(receipt: Receipt, damage: Damage | None) -> bool:
    if damage is None:
        return False
    if damage.kind == "file":
        owner = Scope(receipt.id if receipt.kind == "user" else None, receipt.id).owner
        return any(is_owned(name, owner) for name in damage.owners)
    if receipt.kind == "session":
        return damage.session_id == receipt.id
    head = damage.head
    return head is not None and head.user_id == receipt.id and head.created_at <= receipt.at


def _out_of_reach(config: AgentMemoryConfig) -> list[Part]:
    """Return the places that no deletion reaches: the providers that have received texts."""
    embedders = [config.embedding] if config.embedding and is_remote(config.embedding) else []
    models = sorted({*config.language_models, *embedders})
    note = "The provider decides how long it stores the texts that it received."
    return [Part(f"model {name!r}", "not supported", note) for name in models]


def _absorbed(head: Head, block: str) -> Part:
    lag = head.lag(block)
    text = f"The newest {lag} messages are not absorbed yet. Searches read the log." if lag else ""
    return Part(f"block {block!r}", "done", text)


def tombstones(kind: str, names: Iterable[str], at: datetime) -> list[Record]:
    """Return the tombstones of sessions or users that were deleted at a time."""
    return [replace(_tombstone(kind, name), created_at=at) for name in names]


def _tombstone(kind: str, name: str) -> Record:
    hashed = record_id("deleted", kind, name)
    return Record(hashed, hashed, text=kind)
