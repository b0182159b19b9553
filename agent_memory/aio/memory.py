"""`AsyncAgentMemory`: the engine's names, awaited.

Each call runs on a thread of a pool of its own, through anyio, so that it works on asyncio and trio
alike. A call that has begun finishes even if its caller is cancelled: there is no half-write. A
caller in a cancelled scope (anyio, trio) waits for that; `asyncio.Task.cancel` lets it go at once.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from datetime import date, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TextIO, TypeVar

import anyio
from anyio.to_thread import run_sync
from pydantic import BaseModel

from agent_memory.aio.session import AsyncSession
from agent_memory.aio.streams import AsyncCompletionStream
from agent_memory.config.settings import AgentMemoryConfig
from agent_memory.core.context import MemoryContext
from agent_memory.core.messages import Message
from agent_memory.core.records import Absorbed, DeadLetter, Entry, Head, Recall
from agent_memory.core.turns import Turn
from agent_memory.engine.memory import AgentMemory
from agent_memory.engine.stats import Progress, Stats

if TYPE_CHECKING:
    from agent_memory.engine.loop.offering import GivenTool
    from agent_memory.engine.sharing.shares import Share
    from agent_memory.engine.transfer.snapshots.writing import Exported
    from agent_memory.ltm_blocks.extractive.history.auditing import Change
    from agent_memory.ltm_blocks.extractive.history.fact import Fact
    from agent_memory.ltm_blocks.extractive.history.staleness import Stale
    from agent_memory.ltm_blocks.files.block import Files
    from agent_memory.ltm_blocks.notes import Notebook
    from agent_memory.ltm_blocks.skills.block import Skills
    from agent_memory.ltm_blocks.spatial.block import Places
    from agent_memory.ltm_blocks.working import Scratchpad

P = ParamSpec("P")
T = TypeVar("T")

THREADS = 16


class AsyncAgentMemory:
    """The same memory for async code.

    Args:
        config: As for `AgentMemory`; or an `AgentMemory` that is open already.
        **fields: As for `AgentMemory`.
    """

    def __init__(
        self, config: AgentMemoryConfig | AgentMemory | None = None, **fields: Any
    ) -> None:
        if isinstance(config, AgentMemory):
            self.memory = config
        else:
            self.memory = AgentMemory(config, **fields)
        self._limiter: anyio.CapacityLimiter | None = None
        self._calls = 0
        self._ended = threading.Condition()

    def __repr__(self) -> str:
        return f"Async{self.memory!r}"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        with anyio.CancelScope(shield=True):  # a cancelled block is left closed too
            await self.close()

    async def update(self, session_id: str, message: Any, *, user_id: str | None = None) -> Head:
        """As `AgentMemory.update`."""
        return await self._run(partial(self.memory.update, session_id, message, user_id=user_id))

    async def get(
        self, session_id: str, message: Any = None, *, user_id: str | None = None
    ) -> MemoryContext:
        """As `AgentMemory.get`."""
        return await self._run(partial(self.memory.get, session_id, message, user_id=user_id))

    async def delete(self, session_id: str) -> None:
        """As `AgentMemory.delete`."""
        await self._run(partial(self.memory.delete, session_id))

    async def delete_user(self, user_id: str) -> None:
        """As `AgentMemory.delete_user`."""
        await self._run(partial(self.memory.delete_user, user_id))

    async def flush(self, session_id: str | None = None) -> list[Absorbed]:
        """As `AgentMemory.flush`."""
        return await self._run(partial(self.memory.flush, session_id))

    async def end(self, session_id: str, *, user_id: str | None = None) -> list[Absorbed]:
        """As `AgentMemory.end`."""
        return await self._run(partial(self.memory.end, session_id, user_id=user_id))

    async def history(
        self, session_id: str, *, after: int = 0, limit: int | None = None
    ) -> list[Entry]:
        """As `AgentMemory.history`."""
        return await self._run(partial(self.memory.history, session_id, after=after, limit=limit))

    async def export_session(self, session_id: str, to: str | Path | TextIO) -> Exported:
        """As `AgentMemory.export_session`."""
        return await self._run(partial(self.memory.export_session, session_id, to))

    async def import_session(self, source: str | Path | TextIO | Iterable[str]) -> Head:
        """As `AgentMemory.import_session`."""
        return await self._run(partial(self.memory.import_session, source))

    async def pop(self, session_id: str, count: int = 1) -> list[Message]:
        """As `AgentMemory.pop`."""
        return await self._run(partial(self.memory.pop, session_id, count))

    async def sessions(
        self, *, user_id: str | None = None, limit: int = 100, after: str | None = None
    ) -> list[Head]:
        """As `AgentMemory.sessions`."""
        return await self._run(
            partial(self.memory.sessions, user_id=user_id, limit=limit, after=after)
        )

    async def search(
        self,
        query: str,
        *,
        user_id: str | None = None,
        session_id: str | None = None,
        limit: int = 10,
    ) -> list[Recall]:
        """As `AgentMemory.search`."""
        return await self._run(
            partial(self.memory.search, query, user_id=user_id, session_id=session_id, limit=limit)
        )

    async def replay(self, block: str) -> AsyncIterator[Progress]:
        """As `AgentMemory.replay`."""
        steps = self.memory.replay(block)
        while (step := await self._run(partial(next, steps, None))) is not None:
            yield step

    async def dead_letters(self, block: str | None = None) -> list[DeadLetter]:
        """As `AgentMemory.dead_letters`."""
        return await self._run(partial(self.memory.dead_letters, block))

    async def retry(self, block: str | None = None) -> list[Absorbed]:
        """As `AgentMemory.retry`."""
        return await self._run(partial(self.memory.retry, block))

    async def facts(
        self,
        user_id: str | None = None,
        *,
        session_id: str | None = None,
        as_of: datetime | date | None = None,
        known_at: datetime | date | None = None,
    ) -> list[Fact]:
        """As `AgentMemory.facts`."""
        return await self._run(
            partial(
                self.memory.facts, user_id, session_id=session_id, as_of=as_of, known_at=known_at
            )
        )

    async def profile(
        self,
        user_id: str | None = None,
        *,
        session_id: str | None = None,
        as_of: datetime | date | None = None,
        known_at: datetime | date | None = None,
    ) -> BaseModel:
        """As `AgentMemory.profile`."""
        return await self._run(
            partial(
                self.memory.profile, user_id, session_id=session_id, as_of=as_of, known_at=known_at
            )
        )

    async def stale(
        self, user_id: str | None = None, *, session_id: str | None = None
    ) -> list[Stale]:
        """As `AgentMemory.stale`."""
        return await self._run(partial(self.memory.stale, user_id, session_id=session_id))

    async def audit(
        self, user_id: str | None = None, *, session_id: str | None = None
    ) -> list[Change]:
        """As `AgentMemory.audit`."""
        return await self._run(partial(self.memory.audit, user_id, session_id=session_id))

    async def forget(
        self,
        fact_id: str | None = None,
        *,
        user_id: str | None = None,
        session_id: str | None = None,
        source: str | tuple[str, int, int] | None = None,
        why: str = "",
    ) -> list[Fact]:
        """As `AgentMemory.forget`."""
        call = partial(self.memory.forget, fact_id, user_id=user_id, session_id=session_id)
        return await self._run(partial(call, source=source, why=why))

    async def before_turn(
        self, session_id: str, message: Any, *, user_id: str | None = None
    ) -> Turn:
        """As `AgentMemory.before_turn`."""
        return await self._run(
            partial(self.memory.before_turn, session_id, message, user_id=user_id)
        )

    async def regenerate(self, session_id: str, *, user_id: str | None = None) -> Turn:
        """As `AgentMemory.regenerate`."""
        return await self._run(partial(self.memory.regenerate, session_id, user_id=user_id))

    async def after_turn(self, turn: Turn, answer: Any) -> Head:
        """As `AgentMemory.after_turn`."""
        return await self._run(partial(self.memory.after_turn, turn, answer))

    async def completion(
        self,
        session_id: str,
        message: Any,
        *,
        user_id: str | None = None,
        model: str | None = None,
        tools: Sequence[GivenTool] | None = None,
        stream: bool = False,
        max_rounds: int = 8,
        **options: Any,
    ) -> Any:
        """As `AgentMemory.completion`; with `stream` an `AsyncCompletionStream`."""
        call = partial(
            self.memory.completion, session_id, message, user_id=user_id, model=model, tools=tools
        )
        return await self._completed(
            partial(call, stream=stream, max_rounds=max_rounds, **options), stream
        )

    async def tools(self, session_id: str, *, user_id: str | None = None) -> list[dict[str, Any]]:
        """As `AgentMemory.tools`."""
        return await self._run(partial(self.memory.tools, session_id, user_id=user_id))

    async def call_tool(
        self,
        session_id: str,
        name: str,
        arguments: Mapping[str, Any] | str | None = None,
        *,
        user_id: str | None = None,
    ) -> str:
        """As `AgentMemory.call_tool`."""
        return await self._run(
            partial(self.memory.call_tool, session_id, name, arguments, user_id=user_id)
        )

    async def working(self, session_id: str, *, user_id: str | None = None) -> Scratchpad:
        """As `AgentMemory.working`; make the handle's calls with `run`."""
        return await self._run(partial(self.memory.working, session_id, user_id=user_id))

    async def notes(self, user_id: str | None = None, *, session_id: str | None = None) -> Notebook:
        """As `AgentMemory.notes`; make the handle's calls with `run`."""
        return await self._run(partial(self.memory.notes, user_id, session_id=session_id))

    async def files(self, user_id: str | None = None, *, session_id: str | None = None) -> Files:
        """As `AgentMemory.files`; make the handle's calls with `run`."""
        return await self._run(partial(self.memory.files, user_id, session_id=session_id))

    async def spatial(self, user_id: str | None = None, *, session_id: str | None = None) -> Places:
        """As `AgentMemory.spatial`; make the handle's calls with `run`."""
        return await self._run(partial(self.memory.spatial, user_id, session_id=session_id))

    async def skills(self, user_id: str | None = None, *, session_id: str | None = None) -> Skills:
        """As `AgentMemory.skills`; make the handle's calls with `run`."""
        return await self._run(partial(self.memory.skills, user_id, session_id=session_id))

    async def shares(self) -> list[str]:
        """As `AgentMemory.shares`."""
        return await self._run(self.memory.shares)

    async def share(self, name: str) -> Share:
        """As `AgentMemory.share`; make the calls of what it gives with `run`."""
        return await self._run(partial(self.memory.share, name))

    async def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Make a call of a handle, on the memory's threads.

        pad = await memory.working("s-1")
        await memory.run(pad.set, "plan", ["book a table"])
        """
        return await self._run(partial(call, *args, **kwargs))

    def session(self, session_id: str, user_id: str | None = None) -> AsyncSession:
        """The same calls with the ids bound."""
        return AsyncSession(self, session_id, user_id)

    async def stats(self) -> Stats:
        """As `AgentMemory.stats`."""
        return await self._run(self.memory.stats)

    async def close(self) -> None:
        """As `AgentMemory.close`, once the calls that go on without their callers have ended."""
        await run_sync(self._close)

    def _close(self) -> None:
        with self._ended:
            self._ended.wait_for(lambda: not self._calls)
        self.memory.close()

    async def _completed(self, call: Callable[[], Any], stream: bool) -> Any:
        done = await self._run(call)
        return AsyncCompletionStream(done, self._run) if stream else done

    async def _run(self, call: Callable[[], T]) -> T:
        if self._limiter is None:  # anyio makes one only where a loop runs
            self._limiter = anyio.CapacityLimiter(THREADS)
        return await run_sync(partial(self._counted, call), limiter=self._limiter)

    def _counted(self, call: Callable[[], T]) -> T:
        with self._ended:
            self._calls += 1
        try:
            return call()
        finally:
            with self._ended:
                self._calls -= 1
                self._ended.notify_all()
