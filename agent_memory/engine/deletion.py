"""Deleting sessions and users: marked first, erased after, so that it can be resumed."""

from __future__ import annotations

import logging
from dataclasses import replace

from agent_memory.engine.absorbing import Absorber
from agent_memory.engine.bridge import resolve
from agent_memory.engine.leases import Leases
from agent_memory.engine.paging import all_heads
from agent_memory.errors import StoreUnavailable
from agent_memory.records import Scope
from agent_memory.stores.base import Store

logger = logging.getLogger(__name__)

_WAIT = 30.0


class Deletion:
    """Erases what a store and its blocks hold.

    Args:
        store: The store.
        leases: Which say whether work is under way.
        absorber: Whose blocks forget.
    """

    def __init__(self, store: Store, leases: Leases, absorber: Absorber) -> None:
        self._store = store
        self._leases = leases
        self._absorber = absorber

    def session(self, session_id: str) -> None:
        """Erase one session; see `AgentMemory.delete`."""
        while True:
            head = self._store.head(session_id)
            if head is None:
                return
            if head.deleting or self._store.move(replace(head, deleting=True)):
                break
        with self._leases.hold(session_id, _WAIT) as held:
            if not held:
                if self._store.head(session_id) is None:
                    return
                raise StoreUnavailable(
                    f"Session {session_id!r} is being absorbed and did not let go within "
                    f"{_WAIT:g} s. It is marked for deletion; call delete again."
                )
            for block in self._absorber.blocks.values():
                resolve(block.delete(Scope(head.user_id, session_id)))
            for former in head.cursors.keys() - self._absorber.blocks.keys():
                self._store.delete_facts(former, session_id=session_id)
                self._store.delete_vectors(former, session_id=session_id)
                logger.warning(
                    "block %r absorbed session %r and is not configured now: its records in this "
                    "store were deleted, what it kept elsewhere was not",
                    former,
                    session_id,
                )
            self._store.delete(session_id)

    def user(self, user_id: str) -> None:
        """Erase all of a user's sessions, then what blocks still hold of the user."""
        for head in all_heads(self._store, user_id):
            self.session(head.session_id)
        for block in self._absorber.blocks.values():
            resolve(block.delete(Scope(user_id)))
