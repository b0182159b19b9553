"""Checks before every call: the memory is open, the ids are valid, the user owns the session."""

from __future__ import annotations

from typing import Literal

from agent_memory.core.limits import check_id
from agent_memory.core.records import Head, Scope
from agent_memory.errors import Damaged, InvalidInput, MemoryClosed
from agent_memory.stores.base import SessionStore
from agent_memory.stores.kernel.log import check_owner

Ownership = Literal["own", "deleting", "another's", "nobody's"]


class Guard:
    def __init__(self, store: SessionStore) -> None:
        self._store = store
        self.closed = False

    def check(self, session_id: str | None, user_id: str | None) -> None:
        """Raise `MemoryClosed` if the memory is closed, and `InvalidId` if an id is not valid."""
        if self.closed:
            raise MemoryClosed("This memory was closed. Open a new AgentMemory.")
        if session_id is not None:
            check_id("session_id", session_id)
        if user_id is not None:
            check_id("user_id", user_id)

    def check_session(self, session_id: str, user_id: str | None) -> None:
        """Like `check`, for a call that requires a session id."""
        self.check(None, user_id)
        check_id("session_id", session_id)

    def admit(self, session_id: str | None, user_id: str | None) -> None:
        """Like `check`. Also raise `SessionOfAnotherUser` if the session belongs to another user.

        A damaged session passes if its owner can still be read, so that it can be deleted.
        """
        self.check(session_id, user_id)
        if session_id is not None and user_id is not None:
            try:
                self.owned(session_id, user_id)
            except Damaged as error:
                if error.damage is None or error.damage.head is None or not error.damage.is_usable:
                    raise
                self._owned(error.damage.head, user_id)

    def owned(self, session_id: str, user_id: str | None) -> Head | None:
        """Return the session's head after all checks. None if the session does not exist."""
        self.check_session(session_id, user_id)
        return self._owned(self._store.head(session_id), user_id)

    def _owned(self, head: Head | None, user_id: str | None) -> Head | None:
        if head is None or head.deleting:
            return None
        check_owner(head, user_id)
        return head

    def ownership(self, session_id: str, user_id: str) -> Ownership:
        """Return whose session it is. Servers use this to hide other users' sessions.

        "own": it belongs to the user. "deleting": it belongs to the user, but its deletion is not
        finished. "nobody's": there is no session. "another's": it belongs to another user or to no
        user. A session without a user must stay hidden: the first user that names it would own it.
        """
        self.check_session(session_id, user_id)
        try:
            head = self._store.head(session_id)
        except Damaged as error:  # a damaged session exists
            existing = error.damage.head if error.damage is not None else None
            if existing is not None and existing.user_id == user_id:
                raise
            return "another's"
        if head is None:
            return "nobody's"
        if head.user_id != user_id:
            return "another's"
        return "deleting" if head.deleting else "own"

    def scope(self, user_id: str | None, session_id: str | None) -> Scope:
        """Return the scope of a call after all checks, with the session's user if there is one."""
        self.check(session_id, user_id)
        if user_id is None and session_id is None:
            raise InvalidInput("Say whose memory: give a user_id, or a session_id.")
        head = self.owned(session_id, user_id) if session_id is not None else None
        return scope_of(head, user_id, session_id)


def scope_of(head: Head | None, user_id: str | None, session_id: str | None) -> Scope:
    """Return the scope of a session's user. If the session has none, use `user_id`."""
    owner = head.user_id if head is not None and head.user_id is not None else user_id
    return Scope(owner, session_id)
