"""What the groups of `AgentMemory`'s calls have in common: whose memory a call is about."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from agent_memory.core.records import Head, Scope
from agent_memory.errors import InvalidInput

if TYPE_CHECKING:
    from agent_memory.ltm_blocks.base import Block


class Calls(ABC):
    """Base of each group of calls."""

    blocks: dict[str, Block]

    def _scope(self, user_id: str | None, session_id: str | None) -> Scope:
        """Whose memory it is: of a user, or of a session, whose user it then is.

        Raises:
            InvalidInput: Neither is named, or an id is not usable.
            SessionOfAnotherUser: The session belongs to another user.
        """
        self._check(session_id, user_id)
        if user_id is None and session_id is None:
            raise InvalidInput("Say whose memory: give a user_id, or a session_id.")
        head = self._owned(session_id, user_id) if session_id is not None else None
        return scope_of(head, user_id, session_id)

    @abstractmethod
    def _check(self, session_id: str | None, user_id: str | None) -> None:
        """Refuse unusable ids, and calls after `close`."""

    @abstractmethod
    def _owned(self, session_id: str, user_id: str | None) -> Head | None:
        """The session's head, if it is the user's."""


def scope_of(head: Head | None, user_id: str | None, session_id: str | None) -> Scope:
    """A session's scope: that of the user it belongs to, once it does, else of the one named."""
    owner = head.user_id if head is not None and head.user_id is not None else user_id
    return Scope(owner, session_id)
