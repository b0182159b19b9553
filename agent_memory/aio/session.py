"""`AsyncSession`: a memory's calls with the ids bound, awaited."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TextIO

import anyio
from pydantic import BaseModel

from agent_memory.core.context import MemoryContext
from agent_memory.core.messages import Message
from agent_memory.core.records import Absorbed, Entry, Head, Recall
from agent_memory.core.turns import Turn

if TYPE_CHECKING:
    from agent_memory.aio.memory import AsyncAgentMemory
    from agent_memory.engine.loop.offering import GivenTool
    from agent_memory.engine.transfer.snapshots.writing import Exported
    from agent_memory.ltm_blocks.extractive.history.auditing import Change
    from agent_memory.ltm_blocks.extractive.history.fact import Fact
    from agent_memory.ltm_blocks.extractive.history.staleness import Stale
    from agent_memory.ltm_blocks.files.block import Files
    from agent_memory.ltm_blocks.notes import Notebook
    from agent_memory.ltm_blocks.skills.block import Skills
    from agent_memory.ltm_blocks.spatial.block import Places
    from agent_memory.ltm_blocks.working import Scratchpad


class AsyncSession:
    """`Session`, awaited."""

    def __init__(self, memory: AsyncAgentMemory, session_id: str, user_id: str | None) -> None:
        self._memory = memory
        self._session = memory.memory.session(session_id, user_id)
        self.session_id = session_id
        self.user_id = user_id

    def __repr__(self) -> str:
        return f"Async{self._session!r}"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        with anyio.CancelScope(shield=True):
            await self.end()

    async def update(self, message: Any) -> Head:
        """As `AgentMemory.update`."""
        return await self._memory._run(partial(self._session.update, message))

    async def get(self, message: Any = None) -> MemoryContext:
        """As `AgentMemory.get`."""
        return await self._memory._run(partial(self._session.get, message))

    async def delete(self) -> None:
        """As `AgentMemory.delete`."""
        await self._memory._run(self._session.delete)

    async def flush(self) -> list[Absorbed]:
        """As `AgentMemory.flush`."""
        return await self._memory._run(self._session.flush)

    async def end(self) -> list[Absorbed]:
        """As `AgentMemory.end`."""
        return await self._memory._run(self._session.end)

    async def history(self, *, after: int = 0, limit: int | None = None) -> list[Entry]:
        """As `AgentMemory.history`."""
        return await self._memory._run(partial(self._session.history, after=after, limit=limit))

    async def export_session(self, to: str | Path | TextIO) -> Exported:
        """As `AgentMemory.export_session`."""
        return await self._memory._run(partial(self._session.export_session, to))

    async def pop(self, count: int = 1) -> list[Message]:
        """As `AgentMemory.pop`."""
        return await self._memory._run(partial(self._session.pop, count))

    async def search(self, query: str, *, limit: int = 10) -> list[Recall]:
        """As `Session.search`."""
        return await self._memory._run(partial(self._session.search, query, limit=limit))

    async def facts(
        self, *, as_of: datetime | date | None = None, known_at: datetime | date | None = None
    ) -> list[Fact]:
        """As `Session.facts`."""
        return await self._memory._run(partial(self._session.facts, as_of=as_of, known_at=known_at))

    async def profile(
        self, *, as_of: datetime | date | None = None, known_at: datetime | date | None = None
    ) -> BaseModel:
        """As `Session.profile`."""
        return await self._memory._run(
            partial(self._session.profile, as_of=as_of, known_at=known_at)
        )

    async def stale(self) -> list[Stale]:
        """As `AgentMemory.stale`."""
        return await self._memory._run(self._session.stale)

    async def audit(self) -> list[Change]:
        """As `AgentMemory.audit`."""
        return await self._memory._run(self._session.audit)

    async def forget(
        self,
        fact_id: str | None = None,
        *,
        source: tuple[int, int] | None = None,
        why: str = "",
    ) -> list[Fact]:
        """As `Session.forget`."""
        return await self._memory._run(
            partial(self._session.forget, fact_id, source=source, why=why)
        )

    async def before_turn(self, message: Any) -> Turn:
        """As `AgentMemory.before_turn`."""
        return await self._memory._run(partial(self._session.before_turn, message))

    async def regenerate(self) -> Turn:
        """As `AgentMemory.regenerate`."""
        return await self._memory._run(self._session.regenerate)

    async def after_turn(self, turn: Turn, answer: Any) -> Head:
        """As `AgentMemory.after_turn`."""
        return await self._memory._run(partial(self._session.after_turn, turn, answer))

    async def completion(
        self,
        message: Any,
        *,
        model: str | None = None,
        tools: Sequence[GivenTool] | None = None,
        stream: bool = False,
        max_rounds: int = 8,
        **options: Any,
    ) -> Any:
        """As `AsyncAgentMemory.completion`."""
        call = partial(self._session.completion, message, model=model, tools=tools)
        return await self._memory._completed(
            partial(call, stream=stream, max_rounds=max_rounds, **options), stream
        )

    async def tools(self) -> list[dict[str, Any]]:
        """As `AgentMemory.tools`."""
        return await self._memory._run(self._session.tools)

    async def call_tool(self, name: str, arguments: Mapping[str, Any] | str | None = None) -> str:
        """As `AgentMemory.call_tool`."""
        return await self._memory._run(partial(self._session.call_tool, name, arguments))

    async def working(self) -> Scratchpad:
        """As `AsyncAgentMemory.working`."""
        return await self._memory._run(self._session.working)

    async def notes(self) -> Notebook:
        """As `AsyncAgentMemory.notes`."""
        return await self._memory._run(self._session.notes)

    async def files(self) -> Files:
        """As `AsyncAgentMemory.files`."""
        return await self._memory._run(self._session.files)

    async def spatial(self) -> Places:
        """As `AsyncAgentMemory.spatial`."""
        return await self._memory._run(self._session.spatial)

    async def skills(self) -> Skills:
        """As `AsyncAgentMemory.skills`."""
        return await self._memory._run(self._session.skills)
