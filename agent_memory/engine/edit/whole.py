"""Deletion of a session or a user in one transaction.

All data must be in a store that supports this, and no worker may hold the sessions. Otherwise
`Deletion` deletes in steps, which any worker can resume.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from time import time
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

from agent_memory.core.records import Head, Record, Scope
from agent_memory.core.system_collections import DELETED, GRANTS, NOTES, REGISTRY, VALUES
from agent_memory.engine.edit.receipts import tombstones
from agent_memory.engine.system_records import Kind
from agent_memory.engine.values.items import owner_of
from agent_memory.errors import Damaged
from agent_memory.ltm_blocks.base import Block, ManualBlock
from agent_memory.ltm_blocks.keyed_records import lock_of
from agent_memory.ltm_blocks.versions import version_owner
from agent_memory.stores.damage import noted
from agent_memory.stores.kernel.log import check_owner

if TYPE_CHECKING:
    from agent_memory.engine.assembly import Components

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
        whose = {scope.owner for scope in scopes}
        every = {Scope(None, head.session_id).owner for head in heads}
        if user_id is not None:
            every.add(owner := Scope(user_id).owner)
            if VALUES.name in blocks.facts:
                every.update(self._store.owners(VALUES.name, owner_of(owner, ())))
        # the versions are deleted too, so that other processes reload their caches
        every |= {version_owner(name) for name in every | whose}
        manual = [block.name for block in self._blocks if isinstance(block, ManualBlock)]
        locks = [lock_of(name, owner) for name in manual if name in blocks.facts for owner in whose]
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
