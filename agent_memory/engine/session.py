"""`Session`: a memory's calls with the ids bound."""

from __future__ import annotations

from datetime import date, datetime
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from agent_memory.context import MemoryContext
from agent_memory.messages import Message
from agent_memory.records import Absorbed, Entry, Head, Recall

if TYPE_CHECKING:
    from agent_memory.engine.memory import AgentMemory
    from agent_memory.facts.auditing import Change
    from agent_memory.facts.fact import Fact
    from agent_memory.facts.staleness import Stale
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

    def facts(
        self, *, as_of: datetime | date | None = None, known_at: datetime | date | None = None
    ) -> list[Fact]:
        """The user's facts, as `AgentMemory.facts`; without a user, the session's own."""
        return self._memory.facts(**self._whose, as_of=as_of, known_at=known_at)

    def profile(
        self, *, as_of: datetime | date | None = None, known_at: datetime | date | None = None
    ) -> BaseModel:
        """The user's profile, as `AgentMemory.profile`."""
        return self._memory.profile(**self._whose, as_of=as_of, known_at=known_at)

    def stale(self) -> list[Stale]:
        """As `AgentMemory.stale`."""
        return self._memory.stale(**self._whose)

    def audit(self) -> list[Change]:
        """As `AgentMemory.audit`."""
        return self._memory.audit(**self._whose)

    def forget(
        self,
        fact_id: str | None = None,
        *,
        source: tuple[int, int] | None = None,
        why: str = "",
    ) -> list[Fact]:
        """As `AgentMemory.forget`: a fact, or else what comes from this session.

        Args:
            fact_id: The fact.
            source: First and last seq of the messages; None for all so far.
            why: What the audit is to say.
        """
        if fact_id is not None and source is None:
            return self._memory.forget(fact_id, **self._whose, why=why)
        part = self.session_id if source is None else (self.session_id, *source)
        return self._memory.forget(fact_id, user_id=self.user_id, source=part, why=why)

    @property
    def _whose(self) -> dict[str, str]:
        if self.user_id is not None:
            return {"user_id": self.user_id}
        return {"session_id": self.session_id}
