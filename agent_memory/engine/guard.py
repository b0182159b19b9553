"""What every call asks first: is the memory open, are the ids usable, is the session the user's."""

from __future__ import annotations

from typing import Literal

from agent_memory.core.ids import check_id
from agent_memory.core.records import Head, Scope
from agent_memory.errors import Damaged, InvalidInput, MemoryClosed
from agent_memory.stores.base import SessionStore
from agent_memory.stores.log import check_owner

Whose = Literal["own", "deleting", "another's", "nobody's"]


class Guard:
    """Refuses calls that nobody may make.

    Args:
        store: Where sessions say whose they are.

    Attributes:
        closed: Whether the memory is closed, so that every call is refused.
    """

    def __init__(self, store: SessionStore) -> None:
        self._store = store
        self.closed = False

    def check(self, session_id: str | None, user_id: str | None) -> None:
        """Refuse unusable ids, and calls after `close`.

        Raises:
            MemoryClosed: The memory is closed.
            InvalidId: An id that is named is not usable.
        """
        if self.closed:
            raise MemoryClosed("This memory was closed. Open a new AgentMemory.")
        if session_id is not None:
            check_id("session_id", session_id)
        if user_id is not None:
            check_id("user_id", user_id)

    def check_session(self, session_id: str, user_id: str | None) -> None:
        """As `check`, for a call that is about one session, whatever else is named.

        Raises:
            InvalidId: No session is named, or an id is not usable.
        """
        self.check(None, user_id)
        check_id("session_id", session_id)

    def admit(self, session_id: str | None, user_id: str | None) -> None:
        """As `check`; where both are named, refuse a session of another user too.

        Whose it is may be all that can be read of a session: it can be deleted then.

        Raises:
            SessionOfAnotherUser: The session belongs to another user.
            Damaged: Whose it is cannot be read.
        """
        self.check(session_id, user_id)
        if session_id is not None and user_id is not None:
            try:
                self.owned(session_id, user_id)
            except Damaged as error:
                if error.damage is None or error.damage.head is None or not error.damage.is_known:
                    raise
                self._owned(error.damage.head, user_id)

    def owned(self, session_id: str, user_id: str | None) -> Head | None:
        """The head of a session, whose ids are checked; None where there is no such session.

        Raises:
            SessionOfAnotherUser: The session belongs to another user than the one named.
        """
        return self._owned(self._store.head(session_id), user_id)

    def _owned(self, head: Head | None, user_id: str | None) -> Head | None:
        if head is None or head.deleting:
            return None
        check_owner(head, user_id)
        return head

    def whose(self, session_id: str, user_id: str) -> Whose:
        """Whose a session is, for callers to whom what is another's is like what does not exist.

        What belongs to no user is the library's, and so another's: whoever named it first would
        take it over. "nobody's" is what does not exist.

        Raises:
            InvalidId: An id is not usable.
            Damaged: It is the user's, and cannot be read.
        """
        self.check_session(session_id, user_id)
        try:
            head = self._store.head(session_id)
        except Damaged as error:  # that it is damaged says that it is there
            known = error.damage.head if error.damage is not None else None
            if known is not None and known.user_id == user_id:
                raise
            return "another's"
        if head is None:
            return "nobody's"
        if head.user_id != user_id:
            return "another's"
        return "deleting" if head.deleting else "own"

    def scope(self, user_id: str | None, session_id: str | None) -> Scope:
        """Whose memory a call is about: a user's, or that of a session, whose user it then is.

        Raises:
            InvalidInput: Neither is named, or an id is not usable.
            SessionOfAnotherUser: The session belongs to another user.
        """
        self.check(session_id, user_id)
        if user_id is None and session_id is None:
            raise InvalidInput("Say whose memory: give a user_id, or a session_id.")
        head = self.owned(session_id, user_id) if session_id is not None else None
        return scope_of(head, user_id, session_id)


def scope_of(head: Head | None, user_id: str | None, session_id: str | None) -> Scope:
    """A session's scope: that of the user it belongs to, once it does, else of the one named."""
    owner = head.user_id if head is not None and head.user_id is not None else user_id
    return Scope(owner, session_id)
