"""`Session`: a memory's calls with the ids bound."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self, TextIO, cast

from agent_memory.core.context import MemoryContext
from agent_memory.core.messages import Message
from agent_memory.core.receipts import Receipt
from agent_memory.core.records import Absorbed, Entry, Head, Recall
from agent_memory.core.sent import SentContext
from agent_memory.core.turns import Turn, check_turn
from agent_memory.engine.user import User
from agent_memory.errors import InvalidInput

if TYPE_CHECKING:
    from agent_memory.engine.loop.offering import GivenTool
    from agent_memory.engine.memory import AgentMemory
    from agent_memory.engine.transfer.snapshots.writing import Exported
    from agent_memory.ltm_blocks.working import Scratchpad


class Sessions(Protocol):
    """A memory, as far as its sessions call it. Each call refuses another user's session."""

    def update(
        self,
        session_id: str,
        message: Any,
        *,
        user_id: str | None = None,
        key: str | None = None,
        expected_end: int | None = None,
    ) -> Head: ...

    def get(
        self,
        session_id: str,
        message: Any = None,
        *,
        user_id: str | None = None,
        max_tokens: int | None = None,
    ) -> MemoryContext: ...

    def search(
        self,
        query: str,
        *,
        user_id: str | None = None,
        session_id: str | None = None,
        limit: int = 10,
    ) -> list[Recall]: ...

    def history(
        self,
        session_id: str,
        *,
        user_id: str | None = None,
        after: int = 0,
        limit: int | None = None,
        last: int | None = None,
    ) -> list[Entry]: ...

    def contexts(
        self,
        session_id: str,
        *,
        user_id: str | None = None,
        after: int = 0,
        limit: int | None = None,
    ) -> list[SentContext]: ...

    def pop(
        self, session_id: str, count: int = 1, *, user_id: str | None = None
    ) -> list[Message]: ...

    def before_turn(self, session_id: str, message: Any, *, user_id: str | None = None) -> Turn: ...

    def after_turn(
        self,
        turn: Turn,
        answer: Any,
        *,
        key: str | None = None,
        expected_end: int | None = None,
    ) -> Head: ...

    def completion(
        self, session_id: str, message: Any, *, user_id: str | None = None, **options: Any
    ) -> Any: ...

    def flush(
        self, session_id: str | None = None, *, user_id: str | None = None
    ) -> list[Absorbed]: ...

    def end(self, session_id: str, *, user_id: str | None = None) -> list[Absorbed]: ...

    def delete(self, session_id: str, *, user_id: str | None = None) -> Receipt | None: ...


class BoundSession:
    """One conversation of one user, in any memory.

    Every call raises `SessionOfAnotherUser` where the session belongs to another user than the one
    bound, and does nothing. As a context manager it calls `end` when it is left.

    Args:
        memory: The memory.
        session_id: The conversation.
        user_id: The user, or None: then whose it is does not matter.

    Attributes:
        session_id: As given.
        user_id: As given.
    """

    def __init__(self, memory: Sessions, session_id: str, user_id: str | None) -> None:
        self._memory = memory
        self.session_id = session_id
        self.user_id = user_id

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.session_id!r}, user_id={self.user_id!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.end()

    def update(
        self, message: Any, *, key: str | None = None, expected_end: int | None = None
    ) -> Head:
        """As `AgentMemory.update`."""
        return self._memory.update(
            self.session_id, message, user_id=self.user_id, key=key, expected_end=expected_end
        )

    def get(self, message: Any = None, *, max_tokens: int | None = None) -> MemoryContext:
        """As `AgentMemory.get`."""
        memory, user_id = self._memory, self.user_id
        return memory.get(self.session_id, message, user_id=user_id, max_tokens=max_tokens)

    def search(self, query: str, *, limit: int = 10) -> list[Recall]:
        """What the user's memory holds, as `AgentMemory.search` with the user's id.

        For a session without a user: what the session's own memory holds.
        """
        if self.user_id is None:
            return self._memory.search(query, session_id=self.session_id, limit=limit)
        self.update([])  # appends nothing, and refuses another user's session
        return self._memory.search(query, user_id=self.user_id, limit=limit)

    def history(
        self, *, after: int = 0, limit: int | None = None, last: int | None = None
    ) -> list[Entry]:
        """As `AgentMemory.history`."""
        return self._memory.history(
            self.session_id, user_id=self.user_id, after=after, limit=limit, last=last
        )

    def contexts(self, *, after: int = 0, limit: int | None = None) -> list[SentContext]:
        """As `AgentMemory.contexts`."""
        return self._memory.contexts(
            self.session_id, user_id=self.user_id, after=after, limit=limit
        )

    def pop(self, count: int = 1) -> list[Message]:
        """As `AgentMemory.pop`."""
        return self._memory.pop(self.session_id, count, user_id=self.user_id)

    def before_turn(self, message: Any) -> Turn:
        """As `AgentMemory.before_turn`."""
        return self._memory.before_turn(self.session_id, message, user_id=self.user_id)

    def after_turn(
        self,
        turn: Turn,
        answer: Any,
        *,
        key: str | None = None,
        expected_end: int | None = None,
    ) -> Head:
        """As `AgentMemory.after_turn`, for a turn of this session.

        Raises:
            InvalidInput: The turn is of another session. Nothing was stored.
        """
        check_turn(turn)
        if turn.session_id != self.session_id:
            raise InvalidInput(
                f"The turn is of the session {turn.session_id!r}, not of {self.session_id!r}. Give "
                "it to its own. Nothing was stored."
            )
        own = turn if self.user_id is None else replace(turn, user_id=self.user_id)
        return self._memory.after_turn(own, answer, key=key, expected_end=expected_end)

    def completion(
        self,
        /,
        message: Any,
        *,
        model: str | None = None,
        tools: Sequence[GivenTool] | None = None,
        stream: bool = False,
        max_rounds: int = 8,
        key: str | None = None,
        expected_end: int | None = None,
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
            key=key,
            expected_end=expected_end,
            **options,
        )

    def flush(self) -> list[Absorbed]:
        """As `AgentMemory.flush`."""
        return self._memory.flush(self.session_id, user_id=self.user_id)

    def end(self) -> list[Absorbed]:
        """As `AgentMemory.end`."""
        return self._memory.end(self.session_id, user_id=self.user_id)

    def delete(self) -> Receipt | None:
        """As `AgentMemory.delete`."""
        return self._memory.delete(self.session_id, user_id=self.user_id)


class Session(BoundSession):
    """One conversation of one user; made by `AgentMemory.session`.

    Every call raises `SessionOfAnotherUser` where the session belongs to another user than the one
    bound, and does nothing. As a context manager it calls `end` when it is left.

    Attributes:
        session_id: The conversation.
        user_id: The user, or None: then whose it is does not matter.
    """

    def __init__(self, memory: AgentMemory, session_id: str, user_id: str | None) -> None:
        super().__init__(memory, session_id, user_id)
        self._home = memory

    def get(
        self,
        message: Any = None,
        *,
        max_tokens: int | None = None,
        format: str | None = None,
        window: Sequence[Any] | None = None,
    ) -> MemoryContext:
        """As `AgentMemory.get`."""
        return self._home.get(
            self.session_id,
            message,
            user_id=self.user_id,
            max_tokens=max_tokens,
            format=format,
            window=window,
        )

    def delete(self) -> Receipt:
        """As `AgentMemory.delete`."""
        return self._home.delete(self.session_id, user_id=self.user_id)

    def head(self) -> Head | None:
        """As `AgentMemory.head`."""
        return self._home.head(self.session_id, user_id=self.user_id)

    def describe(self, metadata: dict[str, Any]) -> None:
        """As `AgentMemory.describe`."""
        self._home.describe(self.session_id, metadata, user_id=self.user_id)

    def prune(self, max_tokens: int) -> Head:
        """As `AgentMemory.prune`."""
        return self._home.prune(self.session_id, max_tokens, user_id=self.user_id)

    def pin(self, seq: int) -> None:
        """As `AgentMemory.pin`."""
        self._home.pin(self.session_id, seq, user_id=self.user_id)

    def unpin(self, seq: int) -> None:
        """As `AgentMemory.unpin`."""
        self._home.unpin(self.session_id, seq, user_id=self.user_id)

    def edit(self, change: Callable[[list[Entry]], Iterable[Any]]) -> Head:
        """As `AgentMemory.edit`."""
        return self._home.edit(self.session_id, change, user_id=self.user_id)

    def checkpoint(self) -> Receipt:
        """As `AgentMemory.checkpoint`."""
        return self._home.checkpoint(self.session_id, user_id=self.user_id)

    def regenerate(self) -> Turn:
        """As `AgentMemory.regenerate`."""
        return self._home.regenerate(self.session_id, user_id=self.user_id)

    def tools(self) -> list[dict[str, Any]]:
        """As `AgentMemory.tools`."""
        return self._home.tools(self.session_id, user_id=self.user_id)

    def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | str | None = None,
        *,
        key: str | None = None,
    ) -> str:
        """As `AgentMemory.call_tool`."""
        return self._home.call_tool(self.session_id, name, arguments, user_id=self.user_id, key=key)

    def working(self) -> Scratchpad:
        """The session's scratchpad: JSON values by key.

        Raises:
            ConfigError: No `WorkingMemory` is configured.
        """
        scope = self._home.components.guard.scope(self.user_id, self.session_id)
        return cast("Scratchpad", self._home._open("working", scope))

    def owner(self) -> User:
        """Whose memory it is: the user's, to whom the session belongs, or who is bound; the
        session's own where that is nobody.
        """
        scope = self._home.components.guard.scope(self.user_id, self.session_id)
        return User(self._home, scope.user_id, self.session_id)

    def export(self, to: str | Path | TextIO) -> Exported:
        """Write a snapshot of the session: its log, its head, and what blocks keep of it.

        It is of one moment, whatever else goes on: messages may be appended meanwhile, and are no
        part of it; what works on the session otherwise waits. What belongs to the user, but to no
        session, is not in it. `operations.import_session` brings it in.

        Args:
            to: A path, where the file appears once it is whole, readable by its owner alone; or a
                text file to write to.

        Raises:
            InvalidInput: There is no such session.
            StoreUnavailable: It was worked on for a minute, or deleted while it was written: what
                was written to a text file is not whole then, and `import_session` refuses it.
        """
        from agent_memory.engine.transfer.export import Exporter, written

        parts = self._home.components
        parts.guard.admit(self.session_id, self.user_id)
        exporting = Exporter(parts.store, parts.leases, parts.dead_letters, parts.all_blocks)
        with written(to) as file:
            return exporting.run(self.session_id, file.write, self.user_id)
