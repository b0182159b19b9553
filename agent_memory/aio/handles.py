"""`AsyncSession` and `AsyncUser`: the calls of `Session` and `User`, awaited."""

from __future__ import annotations

from typing import Self

import anyio

from agent_memory.aio.awaited import Run, awaited
from agent_memory.aio.streams import completion_of
from agent_memory.engine.session import Session
from agent_memory.engine.user import User


class AsyncUser:
    """A `User` for async code. Call the methods of its handles with `AsyncAgentMemory.run`.

    Args:
        user: The user.
        run: Runs a call on a thread.

    Attributes:
        user_id: The user's id; None for the owner of a session without a user.
    """

    def __init__(self, user: User, run: Run) -> None:
        self._sync = user
        self._run = run
        self.user_id = user.user_id

    def __repr__(self) -> str:
        return f"Async{self._sync!r}"

    facts = awaited(User.facts)
    profile = awaited(User.profile)
    stale = awaited(User.stale)
    audit = awaited(User.audit)
    forget = awaited(User.forget)
    pin = awaited(User.pin)
    unpin = awaited(User.unpin)
    surplus = awaited(User.surplus)
    forget_all = awaited(User.forget_all)
    notes = awaited(User.notes)
    files = awaited(User.files)
    skills = awaited(User.skills)
    spatial = awaited(User.spatial)
    values = awaited(User.values)
    open = awaited(User.open)
    sessions = awaited(User.sessions)
    delete = awaited(User.delete)


class AsyncSession:
    """A `Session` for async code, from `AsyncAgentMemory.session`.

    Args:
        session: The session.
        run: Runs a call on a thread.

    Attributes:
        session_id: The session's id.
        user_id: The user's id; None if none was given.
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
        """Return a handle for the session's user. See `Session.owner`."""
        return AsyncUser(await self._run(self._sync.owner), self._run)
