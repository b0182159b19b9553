"""`AsyncSession`: a memory's calls with the ids bound, awaited."""

from __future__ import annotations

from typing import Self

import anyio

from agent_memory.aio.awaited import Run, awaited
from agent_memory.aio.streams import completion_of
from agent_memory.aio.user import AsyncUser
from agent_memory.engine.session import Session


class AsyncSession:
    """`Session`, awaited; made by `AsyncAgentMemory.session`.

    Args:
        session: The session.
        run: Makes a call on a thread.

    Attributes:
        session_id: As of `Session`.
        user_id: As of `Session`.
    """

    def __init__(self, session: Session, run: Run) -> None:
        self._sync = session
        self._run = run
        self.session_id = session.session_id
        self.user_id = session.user_id

    def __repr__(self) -> str:
        return f"Async{self._sync!r}"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        with anyio.CancelScope(shield=True):
            await self.end()

    update = awaited(Session.update)
    get = awaited(Session.get)
    search = awaited(Session.search)
    history = awaited(Session.history)
    contexts = awaited(Session.contexts)
    pop = awaited(Session.pop)
    before_turn = awaited(Session.before_turn)
    after_turn = awaited(Session.after_turn)
    regenerate = awaited(Session.regenerate)
    completion = completion_of(Session.completion)
    tools = awaited(Session.tools)
    call_tool = awaited(Session.call_tool)
    working = awaited(Session.working)
    end = awaited(Session.end)
    flush = awaited(Session.flush)
    head = awaited(Session.head)
    describe = awaited(Session.describe)
    prune = awaited(Session.prune)
    pin = awaited(Session.pin)
    unpin = awaited(Session.unpin)
    edit = awaited(Session.edit)
    checkpoint = awaited(Session.checkpoint)
    export = awaited(Session.export)
    delete = awaited(Session.delete)

    async def owner(self) -> AsyncUser:
        """As `Session.owner`."""
        return AsyncUser(await self._run(self._sync.owner), self._run)
