"""`NullMemory`: the names of `AgentMemory`, and remembers nothing."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any, Self

from pydantic import BaseModel

from agent_memory.context import MemoryContext
from agent_memory.engine.session import Session
from agent_memory.engine.stats import Progress, Stats
from agent_memory.errors import ConfigError
from agent_memory.messages import Message
from agent_memory.records import Absorbed, DeadLetter, Entry, Head, Recall, empty_head
from agent_memory.usage import Usage

if TYPE_CHECKING:
    from agent_memory.facts.auditing import Change
    from agent_memory.facts.fact import Fact
    from agent_memory.facts.staleness import Stale


class NullMemory:
    """Switches memory off without touching the code that uses it.

    Messages are still checked, so that what is refused by the real memory is refused here.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def update(self, session_id: str, message: Any, *, user_id: str | None = None) -> Head:
        """Check the message and forget it."""
        for one in message if isinstance(message, list | tuple) else [message]:
            Message.of(one)
        return empty_head(session_id, user_id, datetime.now(UTC))

    def get(
        self, session_id: str, message: Any = None, *, user_id: str | None = None
    ) -> MemoryContext:
        """An empty context."""
        return MemoryContext([], [], 0, 0, [], None, {})

    def delete(self, session_id: str) -> None:
        """Nothing to delete."""

    def delete_user(self, user_id: str) -> None:
        """Nothing to delete."""

    def flush(self, session_id: str | None = None) -> list[Absorbed]:
        """Nothing to absorb."""
        return []

    def history(self, session_id: str, *, after: int = 0, limit: int | None = None) -> list[Entry]:
        """An empty log."""
        return []

    def pop(self, session_id: str, count: int = 1) -> list[Message]:
        """Nothing to take back."""
        return []

    def sessions(
        self, *, user_id: str | None = None, limit: int = 100, after: str | None = None
    ) -> list[Head]:
        """No sessions."""
        return []

    def search(
        self,
        query: str,
        *,
        user_id: str | None = None,
        session_id: str | None = None,
        limit: int = 10,
    ) -> list[Recall]:
        """Nothing is found."""
        return []

    def replay(self, block: str) -> Iterator[Progress]:
        """Nothing to rebuild."""
        return iter(())

    def dead_letters(self, block: str | None = None) -> list[DeadLetter]:
        """None: nothing is absorbed."""
        return []

    def retry(self, block: str | None = None) -> list[Absorbed]:
        """Nothing to absorb."""
        return []

    def facts(
        self,
        user_id: str | None = None,
        *,
        session_id: str | None = None,
        as_of: datetime | date | None = None,
        known_at: datetime | date | None = None,
    ) -> list[Fact]:
        """No facts."""
        return []

    def profile(
        self,
        user_id: str | None = None,
        *,
        session_id: str | None = None,
        as_of: datetime | date | None = None,
        known_at: datetime | date | None = None,
    ) -> BaseModel:
        """There is none to fill.

        Raises:
            ConfigError: Always.
        """
        raise ConfigError("NullMemory has no blocks, and so no profile. Use AgentMemory for one.")

    def stale(self, user_id: str | None = None, *, session_id: str | None = None) -> list[Stale]:
        """No facts."""
        return []

    def audit(self, user_id: str | None = None, *, session_id: str | None = None) -> list[Change]:
        """No changes."""
        return []

    def forget(
        self,
        fact_id: str | None = None,
        *,
        user_id: str | None = None,
        session_id: str | None = None,
        source: str | tuple[str, int, int] | None = None,
        why: str = "",
    ) -> list[Fact]:
        """Nothing to forget."""
        return []

    def session(self, session_id: str, user_id: str | None = None) -> Session:
        """The same calls with the ids bound."""
        return Session(self, session_id, user_id)

    def stats(self) -> Stats:
        """All zero."""
        return Stats(0, 0, {}, Usage())

    def close(self) -> None:
        """Nothing to release."""
