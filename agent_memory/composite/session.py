"""`CompositeSession`: a composite's calls with the ids bound."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from agent_memory.core.context import MemoryContext
from agent_memory.core.messages import Message
from agent_memory.core.records import Absorbed, Entry, Head, Recall
from agent_memory.core.turns import Turn
from agent_memory.engine.session import Session

if TYPE_CHECKING:
    from agent_memory.composite.memory import CompositeMemory


class CompositeSession:
    """One conversation of one user; made by `CompositeMemory.session`.

    As a context manager it calls `end` when it is left.

    Attributes:
        session_id: The conversation.
        user_id: The user, or None.
    """

    def __init__(self, memory: CompositeMemory, session_id: str, user_id: str | None) -> None:
        self._memory = memory
        self.session_id = session_id
        self.user_id = user_id

    def __repr__(self) -> str:
        return f"CompositeSession({self.session_id!r}, user_id={self.user_id!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.end()

    @property
    def home(self) -> Session:
        """The session in its home: for its facts, notes, files, tools."""
        home = self._memory.home(self.session_id, self.user_id)
        return home.session(self.session_id, self.user_id)

    def update(self, message: Any) -> Head:
        """As `CompositeMemory.update`."""
        return self._memory.update(self.session_id, message, user_id=self.user_id)

    def get(self, message: Any = None) -> MemoryContext:
        """As `CompositeMemory.get`."""
        return self._memory.get(self.session_id, message, user_id=self.user_id)

    def delete(self) -> None:
        """As `CompositeMemory.delete`."""
        self._memory.delete(self.session_id)

    def flush(self) -> list[Absorbed]:
        """As `CompositeMemory.flush`."""
        return self._memory.flush(self.session_id)

    def end(self) -> list[Absorbed]:
        """As `CompositeMemory.end`."""
        return self._memory.end(self.session_id, user_id=self.user_id)

    def history(self, *, after: int = 0, limit: int | None = None) -> list[Entry]:
        """As `CompositeMemory.history`."""
        return self._memory.history(self.session_id, after=after, limit=limit)

    def pop(self, count: int = 1) -> list[Message]:
        """As `CompositeMemory.pop`."""
        return self._memory.pop(self.session_id, count)

    def search(self, query: str, *, limit: int = 10) -> list[Recall]:
        """What all members hold of the user; of a session without one, what comes from it."""
        if self.user_id is not None:
            return self._memory.search(query, user_id=self.user_id, limit=limit)
        return self._memory.search(query, session_id=self.session_id, limit=limit)

    def before_turn(self, message: Any) -> Turn:
        """As `CompositeMemory.before_turn`."""
        return self._memory.before_turn(self.session_id, message, user_id=self.user_id)

    def after_turn(self, turn: Turn, answer: Any) -> Head:
        """As `CompositeMemory.after_turn`."""
        return self._memory.after_turn(turn, answer)

    def completion(self, message: Any, **options: Any) -> Any:
        """As `CompositeMemory.completion`."""
        return self._memory.completion(self.session_id, message, user_id=self.user_id, **options)
