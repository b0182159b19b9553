"""`Session`: a memory's calls with the ids bound."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent_memory.context import MemoryContext
from agent_memory.messages import Message
from agent_memory.records import Absorbed, Entry, Head, Recall

if TYPE_CHECKING:
    from agent_memory.engine.memory import AgentMemory
    from agent_memory.null import NullMemory


class Session:
    """One conversation of one user; made by `AgentMemory.session`.

    Attributes:
        session_id: The conversation.
        user_id: The user, or None.
    """

    def __init__(
        self, memory: AgentMemory | NullMemory, session_id: str, user_id: str | None
    ) -> None:
        self._memory = memory
        self.session_id = session_id
        self.user_id = user_id

    def __repr__(self) -> str:
        return f"Session({self.session_id!r}, user_id={self.user_id!r})"

    def update(self, message: Any) -> Head:
        """As `AgentMemory.update`."""
        return self._memory.update(self.session_id, message, user_id=self.user_id)

    def get(self, message: Any = None) -> MemoryContext:
        """As `AgentMemory.get`."""
        return self._memory.get(self.session_id, message, user_id=self.user_id)

    def delete(self) -> None:
        """As `AgentMemory.delete`."""
        self._memory.delete(self.session_id)

    def flush(self) -> list[Absorbed]:
        """As `AgentMemory.flush`."""
        return self._memory.flush(self.session_id)

    def history(self, *, after: int = 0, limit: int | None = None) -> list[Entry]:
        """As `AgentMemory.history`."""
        return self._memory.history(self.session_id, after=after, limit=limit)

    def pop(self, count: int = 1) -> list[Message]:
        """As `AgentMemory.pop`."""
        return self._memory.pop(self.session_id, count)

    def search(self, query: str, *, limit: int = 10) -> list[Recall]:
        """What the user's memory holds, as `AgentMemory.search` with the user's id.

        For a session without a user: what the session's own memory holds.
        """
        if self.user_id is not None:
            return self._memory.search(query, user_id=self.user_id, limit=limit)
        return self._memory.search(query, session_id=self.session_id, limit=limit)
