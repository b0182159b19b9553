"""`Session`: a memory's calls with the ids bound."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TextIO

from pydantic import BaseModel

from agent_memory.core.context import MemoryContext
from agent_memory.core.messages import Message
from agent_memory.core.records import Absorbed, Entry, Head, Recall

if TYPE_CHECKING:
    from agent_memory.core.turns import Turn
    from agent_memory.engine.loop.offering import GivenTool
    from agent_memory.engine.memory import AgentMemory
    from agent_memory.engine.transfer.snapshots.writing import Exported
    from agent_memory.ltm_blocks.extractive.history.auditing import Change
    from agent_memory.ltm_blocks.extractive.history.fact import Fact
    from agent_memory.ltm_blocks.extractive.history.staleness import Stale
    from agent_memory.ltm_blocks.files.block import Files
    from agent_memory.ltm_blocks.notes import Notebook
    from agent_memory.ltm_blocks.skills.block import Skills
    from agent_memory.ltm_blocks.spatial.block import Places
    from agent_memory.ltm_blocks.working import Scratchpad


class Session:
    """One conversation of one user; made by `AgentMemory.session`.

    As a context manager it calls `end` when it is left.

    Attributes:
        session_id: The conversation.
        user_id: The user, or None.
    """

    def __init__(self, memory: AgentMemory, session_id: str, user_id: str | None) -> None:
        self._memory = memory
        self.session_id = session_id
        self.user_id = user_id

    def __repr__(self) -> str:
        return f"Session({self.session_id!r}, user_id={self.user_id!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.end()

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

    def end(self) -> list[Absorbed]:
        """As `AgentMemory.end`."""
        return self._memory.end(self.session_id, user_id=self.user_id)

    def history(self, *, after: int = 0, limit: int | None = None) -> list[Entry]:
        """As `AgentMemory.history`."""
        return self._memory.history(self.session_id, after=after, limit=limit)

    def export_session(self, to: str | Path | TextIO) -> Exported:
        """As `AgentMemory.export_session`."""
        return self._memory.export_session(self.session_id, to)

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

    def before_turn(self, message: Any) -> Turn:
        """As `AgentMemory.before_turn`."""
        return self._memory.before_turn(self.session_id, message, user_id=self.user_id)

    def regenerate(self) -> Turn:
        """As `AgentMemory.regenerate`."""
        return self._memory.regenerate(self.session_id, user_id=self.user_id)

    def after_turn(self, turn: Turn, answer: Any) -> Head:
        """As `AgentMemory.after_turn`."""
        return self._memory.after_turn(turn, answer)

    def completion(
        self,
        message: Any,
        *,
        model: str | None = None,
        tools: Sequence[GivenTool] | None = None,
        stream: bool = False,
        max_rounds: int = 8,
        **options: Any,
    ) -> Any:
        """As `AgentMemory.completion`."""
        return self._memory.completion(
            self.session_id,
            message,
            user_id=self.user_id,
            model=model,
            tools=tools,
            stream=stream,
            max_rounds=max_rounds,
            **options,
        )

    def working(self) -> Scratchpad:
        """As `AgentMemory.working`."""
        return self._memory.working(self.session_id, user_id=self.user_id)

    def notes(self) -> Notebook:
        """The user's notes, as `AgentMemory.notes`; without a user, the session's own."""
        return self._memory.notes(self.user_id, session_id=self.session_id)

    def files(self) -> Files:
        """The user's files, as `AgentMemory.files`."""
        return self._memory.files(self.user_id, session_id=self.session_id)

    def spatial(self) -> Places:
        """What the user's agent observed, as `AgentMemory.spatial`."""
        return self._memory.spatial(self.user_id, session_id=self.session_id)

    def skills(self) -> Skills:
        """Everybody's skills and the user's own, as `AgentMemory.skills`."""
        return self._memory.skills(self.user_id, session_id=self.session_id)

    def tools(self) -> list[dict[str, Any]]:
        """As `AgentMemory.tools`."""
        return self._memory.tools(self.session_id, user_id=self.user_id)

    def call_tool(self, name: str, arguments: Mapping[str, Any] | str | None = None) -> str:
        """As `AgentMemory.call_tool`."""
        return self._memory.call_tool(self.session_id, name, arguments, user_id=self.user_id)

    @property
    def _whose(self) -> dict[str, str]:
        if self.user_id is not None:
            return {"user_id": self.user_id}
        return {"session_id": self.session_id}
