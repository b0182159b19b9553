"""Deletion of sessions and users. A stored mark lets any worker finish an interrupted deletion."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from math import inf
from time import monotonic, time
from typing import TYPE_CHECKING, NamedTuple, TypeVar
from uuid import uuid4

from agent_memory.core.receipts import Part
from agent_memory.core.records import Head, Lease, Record, Scope
from agent_memory.core.system_collections import (
    DELETED,
    GRANTS,
    KEYS,
    NOTES,
    REGISTRY,
    VALUES,
    system_collection,
)
from agent_memory.core.threads import off_main_thread
from agent_memory.engine.edit.edit import under_lease
from agent_memory.engine.edit.receipts import Outcome, tombstones
from agent_memory.engine.leases import Locks
from agent_memory.engine.paging import all_heads
from agent_memory.engine.recall.runner import resolve
from agent_memory.engine.system_records import Kind
from agent_memory.engine.values.items import owner_of
from agent_memory.engine.values.key_values import erase_values
from agent_memory.errors import Damaged, SessionDeleting, StoreUnavailable
from agent_memory.ltm_blocks.base import Block, ManualBlock, record_id
from agent_memory.ltm_blocks.keyed_records import lock_of
from agent_memory.ltm_blocks.registry import FORGOTTEN, erase_derived, erase_indexed, registered
from agent_memory.ltm_blocks.versions import erase, version_owner
from agent_memory.stores.damage import head_or_rest, noted
from agent_memory.stores.kernel.log import check_owner

if TYPE_CHECKING:
    from agent_memory.engine.assembly import Components

logger = logging.getLogger(__name__)

_PATIENCE = 60.0
"""The seconds for which a call is repeated while its session is being deleted."""

_LOG, _ENGINE_NOTES, _GRANTS = Part("log"), Part("notes of the engine"), Part("grants")
_CACHES = Part("caches", "done", "Each process compares its caches with the store before use.")
_SERVER = Part(
    "files", "not supported", "The server's configuration decides what its files and replicas keep."
)
_FORMER = "its records in this store were deleted, records in other databases were not"

T = TypeVar("T")


class Deletion:
    def __init__(self, parts: Components) -> None:
        self._parts, self._store, self._absorber = parts, parts.store, parts.absorber
        self._records, self._deleted = parts.records, parts.deleted
        self._locks = Locks(self._store)
        blocks = parts.all_blocks.values()  # manual blocks have records that derive from no log
        self._manual_blocks = [block for block in blocks if isinstance(block, ManualBlock)]
        self._blocks = [*self._absorber.blocks.values(), *self._manual_blocks]
        of_blocks = (Part(f"block {block.name!r}") for block in self._blocks)
        self._places = [_LOG, *of_blocks, _ENGINE_NOTES]
        self._whole_deletion = WholeDeletion(parts, self._blocks)

    @off_main_thread
    def session(self, session_id: str, user_id: str | None = None) -> Outcome:
        if (done := self._whole_deletion.session(session_id, user_id)) is not None:
            parts = [*self._places_of(done.heads[0]), self.scrub([done.key])]
            return Outcome(parts, None, done.has_registry)
        begun = datetime.now(UTC)
        exists = self._mark(session_id, user_id=user_id)
        parts = self.finish(session_id)
        if exists:
            self._deleted.note("session", [session_id], begun)
        return Outcome(parts)

    @off_main_thread
    def finish(self, session_id: str) -> list[Part]:
        """Erase a session that is marked as deleted. Return the outcome for each place of data."""
        return [*self._erase(session_id), self.scrub()]

    def retried(self, session_id: str, call: Callable[[], T]) -> T:
        """Run a call for a session and return its result.

        If the session is being deleted, by any process, finish the deletion and repeat the call.

        Raises:
            StoreUnavailable: The session is deleted again and again, or its deletion does not end.
        """
        deadline = monotonic() + _PATIENCE
        while True:
            try:
                return call()
            except SessionDeleting as error:
                if monotonic() >= deadline:
                    raise StoreUnavailable(
                        f"Session {session_id!r} was deleted again and again, for "
                        f"{_PATIENCE:g} s. Nothing was stored; try again."
                    ) from error
                self.finish(session_id)

    @off_main_thread
    def user(self, user_id: str) -> Outcome:
        """Erase all of a user's sessions, and the user's records in blocks."""
        if (done := self._whole_deletion.user(user_id)) is not None:
            parts = [*self._places, _GRANTS]
            parts += [part for head in done.heads for part in self._places_of(head)]
            with noted() as unread:
                newer = self._store.sessions(user_id=user_id, limit=1)
            if newer or unread:  # blocks absorb the newer sessions again
                return Outcome([*parts, *self._finish(done.key, user_id)])
            parts.append(self.scrub([]))
            self._records.drop(Kind.USER_DELETIONS, done.key)
            return Outcome(parts, unread, done.has_registry)
        begun = [head.created_at.timestamp() for head in self._sessions(user_id)]
        before = max([time(), *begun])  # the clock of another machine may be ahead
        key = uuid4().hex
        self._records.write(Kind.USER_DELETIONS, key, user_id=user_id, before=before)
        self._deleted.note("user", [user_id], datetime.fromtimestamp(before, UTC))
        return Outcome(self._finish(key, user_id))

    def settle(self, user_id: str) -> None:
        """Finish a user's pending deletions, before the user gets new data."""
        for key, note in self._records.read(Kind.USER_DELETIONS).items():
            if note["user_id"] == user_id:
                self._finish(key, user_id)

    def resume(self) -> None:
        """Finish interrupted deletions of users, and erase traces of deleted data from files."""
        for key, note in self._records.read(Kind.USER_DELETIONS).items():
            try:
                self._finish(key, note["user_id"])
            except Exception:  # one failure must not stop other deletions
                logger.exception("the deletion of a user was not finished; it will be tried again")
        if self._records.read(Kind.SCRUBS):
            self.scrub()

    @off_main_thread
    def _finish(self, key: str, user_id: str) -> list[Part]:
        """Erase a user's data that is older than the deletion. Return the outcome for each place.

        One caller at a time erases. A second caller finds the deletion done, and erases nothing:
        the user's current data is newer.
        """
        parts = [*self._places, _GRANTS]
        with self._locks.held(record_id("deletion", user_id)):
            note = self._records.read(Kind.USER_DELETIONS).get(key)
            if note is not None:
                parts += self._erase_user(key, user_id, note["before"], cleared="cleared" in note)
            return [*parts, self.scrub()]

    def _erase_user(self, key: str, user_id: str, before: float, *, cleared: bool) -> list[Part]:
        """Erase a user's data that is older than the time `before`.

        With `cleared`, an earlier call has cleared the manual blocks. Their data is newer.
        """
        # all sessions are marked first, so that they stay hidden after an interruption
        sessions = [head.session_id for head in self._sessions(user_id)]
        marked = [name for name in sessions if self._mark(name, before)]
        self._deleted.note("session", marked, datetime.fromtimestamp(before, UTC))
        if not cleared:
            self._parts.redaction.close(user_id)
            self._clear_manual_blocks(Scope(user_id))
            erase_indexed(self._store, user_id)
            erase_values(self._store, Scope(user_id))
            self._records.write(
                Kind.USER_DELETIONS, key, user_id=user_id, before=before, cleared=True
            )
        parts: list[Part] = []
        for session_id in marked:
            parts += self._erase(session_id)
        for block in self._absorber.blocks.values():
            resolve(block.delete(Scope(user_id)))
        for name in (FORGOTTEN, KEYS.name):
            self._store.delete_records(name, owner=Scope(user_id).owner)
        self._parts.redaction.erase(user_id)
        # messages that arrived after the deletion began are absorbed again
        for head in all_heads(self._store, user_id):
            for name in self._absorber.blocks:
                self._absorber.rewind(name, None, head.session_id)
        self._records.write(Kind.SCRUBS, uuid4().hex)  # for `resume`, if this call is interrupted
        for done, note in self._records.read(Kind.USER_DELETIONS).items():
            # the note of a later deletion stays until that deletion ends
            if note["user_id"] == user_id and note["before"] <= before:
                self._records.drop(Kind.USER_DELETIONS, done)
        return parts

    def _clear_manual_blocks(self, scope: Scope) -> None:
        for block in self._manual_blocks:
            resolve(block.delete(scope))
        # blocks that are not configured now may have data in this store
        for name in registered(self._store) - {block.name for block in self._manual_blocks}:
            erase(self._store, name, scope)

    def scrub(self, noted: Collection[str] | None = None) -> Part:
        """Erase traces from files. Then delete the scrub notes `noted`, by default all.

        If the erasure is pending, a note stays, and `resume` tries again.
        """
        if noted is None:
            noted = self._records.read(Kind.SCRUBS)
        if pending := self._store.secure_erase():
            self._records.write(Kind.SCRUBS, "pending")  # one note for all deletions
            noted = {*noted} - {"pending"}
        for key in noted:
            self._records.drop(Kind.SCRUBS, key)
        if pending:
            return Part("files", "failed", f"Pending: {pending}")
        return _SERVER if self._store.remote else Part("files")

    def _mark(self, session_id: str, before: float = inf, user_id: str | None = None) -> bool:
        """Mark a session as deleted. Return False if it does not exist or began after `before`.

        Raises:
            SessionOfAnotherUser: The session belongs to another user.
        """
        while (head := self._head(session_id)) and head.created_at.timestamp() <= before:
            check_owner(head, user_id)
            if head.deleting or self._store.move(replace(head, deleting=True)):
                return True
        return False

    def _erase(self, session_id: str) -> list[Part]:
        def marked() -> Head | None:
            head = self._head(session_id)
            return head if head is not None and head.deleting else None

        hint = "It is marked for deletion; call delete again."
        return under_lease(self._parts.leases, session_id, marked, self._clear, hint) or [_LOG]

    def _head(self, session_id: str) -> Head | None:
        """Return a session's head. If it is damaged, the head has only the readable fields."""
        try:
            return self._store.head(session_id)
        except Damaged as error:
            head = head_or_rest(self._store, session_id)
            if head is None or error.damage is None or "cursors" not in error.damage.broken:
                return head
            # the cursors are lost: assume that all blocks with records here absorbed the session
            names = {block for block, _ in self._store.all_records()}
            names |= self._store.vector_blocks().keys()
            blocks = {name: 0 for name in names if not system_collection(name)}
            return replace(head, cursors={**blocks, **head.cursors})

    def _sessions(self, user_id: str) -> list[Head]:
        """Return the heads of a user's sessions. Damaged heads have only the readable fields."""
        with noted() as damaged:
            heads = list(all_heads(self._store, user_id))
        rests = [error.damage.head for error in damaged if error.damage and error.damage.head]
        return heads + [head for head in rests if head.user_id == user_id]

    def _clear(self, head: Head, lease: Lease) -> list[Part]:
        scope = Scope(head.user_id, head.session_id, lease=lease)
        for block in self._absorber.blocks.values():
            self._absorber.forget(block, head, scope)
        self._clear_manual_blocks(scope)
        for name in self._former(head):
            erase_derived(self._store, name, scope)
        self._records.erase_session(head.session_id, lease)
        self._records.write(Kind.SCRUBS, uuid4().hex)  # for `resume`, if this call is interrupted
        self._store.delete(head.session_id, lease=lease)
        self._parts.windows.forget(head.session_id)
        return self._places_of(head)

    def _places_of(self, head: Head) -> list[Part]:
        """Return the outcome for each place of an erased session."""
        parts = [*self._places, _CACHES]
        for block in self._former(head):
            warning = "block %r absorbed session %r and is not configured now: %s"
            logger.warning(warning, block, head.session_id, _FORMER)
            why = f"It is not configured now: {_FORMER}."
            parts.append(Part(f"block {block!r}", "not supported", why))
        return parts

    def _former(self, head: Head) -> list[str]:
        """Return the blocks that absorbed a session but are not configured now."""
        return sorted(head.cursors.keys() - self._absorber.blocks.keys())


_MOST_SESSIONS = 100
_MOST_ENTRIES = 20_000


class Deleting(NamedTuple):
    key: str  # the key of the note about the deletion; this note is dropped last
    heads: Sequence[Head]  # the deleted sessions
    has_registry: bool  # whether the store lists blocks with databases of their own


class WholeDeletion:
    """Deletes sessions and users whose data is all in the session store.

    The store has a note of each deletion until all traces in the store's files are erased.
    """

    def __init__(self, parts: Components, blocks: Sequence[Block]) -> None:
        self._parts, self._store, self._blocks = parts, parts.store, blocks
        self._in_one_step = self._store.spans and all(block.deletes_by_owner for block in blocks)

    def session(self, session_id: str, user_id: str | None) -> Deleting | None:
        """Delete a session. Return None if there is no session or the deletion needs several steps.

        Raises:
            SessionOfAnotherUser: The session belongs to another user.
        """
        if not self._in_one_step:
            return None
        begun, key = datetime.now(UTC), uuid4().hex
        try:
            head = self._store.head(session_id)
        except Damaged:
            return None
        if head is None or not _is_small([head]):
            return None
        check_owner(head, user_id)
        left = {
            DELETED.name: tombstones("session", [session_id], begun),
            NOTES.name: [self._parts.records.note(Kind.SCRUBS, key)],
        }
        return self._delete(key, [head], left)

    def user(self, user_id: str) -> Deleting | None:
        """Delete a user. Return None if the deletion needs several steps."""
        if not self._in_one_step:
            return None
        with noted() as damaged:
            heads = self._store.sessions(user_id=user_id, limit=_MOST_SESSIONS + 1)
        if damaged or not _is_small(heads):
            return None
        # the clock of another machine may be ahead
        before = max([time(), *(head.created_at.timestamp() for head in heads)])
        key, at = uuid4().hex, datetime.fromtimestamp(before, UTC)
        note = self._parts.records.note(
            Kind.USER_DELETIONS, key, user_id=user_id, before=before, cleared=True
        )
        ids = [head.session_id for head in heads]
        stones = [*tombstones("user", [user_id], at), *tombstones("session", ids, at)]
        left = {DELETED.name: stones, NOTES.name: [note]}
        return self._delete(key, heads, left, user_id)

    def _delete(
        self,
        key: str,
        heads: Sequence[Head],
        left: dict[str, list[Record]],
        user_id: str | None = None,
    ) -> Deleting | None:
        blocks = self._store.blocks()
        takes_part = self._parts.redaction.takes_part
        if user_id is not None and GRANTS.name in blocks.facts and takes_part(user_id):
            return None
        scopes = [Scope(head.user_id, head.session_id) for head in heads]
        scopes += [] if user_id is None else [Scope(user_id)]
        owners = {scope.owner for scope in scopes}
        every = {Scope(None, head.session_id).owner for head in heads}
        if user_id is not None:
            every.add(owner := Scope(user_id).owner)
            if VALUES.name in blocks.facts:
                every.update(self._store.owners(VALUES.name, owner_of(owner, ())))
        # the versions are deleted too, so that other processes reload their caches
        every |= {version_owner(name) for name in every | owners}
        manual = [block.name for block in self._blocks if isinstance(block, ManualBlock)]
        used = [name for name in manual if name in blocks.facts]
        locks = [lock_of(name, owner) for name in used for owner in owners]
        done = self._store.delete_whole(heads, blocks, owners=every, locks=locks, leaving=left)
        if not done:
            return None
        for head in heads:
            self._parts.windows.forget(head.session_id)
        for block in self._blocks:
            for scope in scopes:
                block.drop_caches(scope)
        return Deleting(key, heads, REGISTRY.name in blocks.facts)


def _is_small(heads: Sequence[Head]) -> bool:
    """Return whether the sessions are few and small, and none is being deleted."""
    return (
        len(heads) <= _MOST_SESSIONS
        and sum(head.end - head.expired for head in heads) <= _MOST_ENTRIES
        and not any(head.deleting for head in heads)
    )
