"""`AsyncUser`: what is known of a user, awaited."""

from __future__ import annotations

from agent_memory.aio.awaited import Run, awaited
from agent_memory.engine.user import User


class AsyncUser:
    """`User`, awaited; make the calls of the handles that it gives with `AsyncAgentMemory.run`.

    Args:
        user: The user.
        run: Makes a call on a thread.

    Attributes:
        user_id: As of `User`.
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
