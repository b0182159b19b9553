"""`Session`: a handle for one session of a memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TextIO, cast

from agent_memory.core.context import MemoryContext
from agent_memory.core.messages import Message
from agent_memory.core.notices import with_call_errors
from agent_memory.core.prompt_log import SentContext
from agent_memory.core.receipts import Receipt
from agent_memory.core.records import Absorbed, Entry, Head, Recall
from agent_memory.core.turns import Turn, check_turn
from agent_memory.engine.user import User
from agent_memory.errors import InvalidInput

if TYPE_CHECKING:
    from agent_memory.composite.memory import CompositeMemory
    from agent_memory.engine.loop.rounds import GivenTool
    from agent_memory.engine.memory import AgentMemory
    from agent_memory.engine.transfer.snapshot import Exported
    from agent_memory.ltm_blocks.working import Scratchpad


@with_call_errors
class BoundSession:
    """The methods that `Session` and the session of a `CompositeMemory` share."""

    def __init__(
        self, memory: AgentMemory | CompositeMemory, session_id: str, user_id: str | None
    ) -> None:
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
        """Append messages. See `AgentMemory.update`."""
        return self._memory.update(
            self.session_id, message, user_id=self.user_id, key=key, expected_end=expected_end
        )

    def get(self, message: Any = None, *, max_tokens: int | None = None) -> MemoryContext:
        """Return the context. See `AgentMemory.get`."""
        memory, user_id = self._memory, self.user_id
        return memory.get(self.session_id, message, user_id=user_id, max_tokens=max_tokens)

    def search(self, query: str, *, limit: int = 10) -> list[Recall]:
        """Search the user's memory. See `AgentMemory.search`.

        For a session without a user, search the memory of the session.
        """
        if self.user_id is None:
            return self._memory.search(query, session_id=self.session_id, limit=limit)
        self.update([])  # appends nothing; raises if the session belongs to another user
        return self._memory.search(query, user_id=self.user_id, limit=limit)

    def history(
        self, *, after: int = 0, limit: int | None = None, last: int | None = None
    ) -> list[Entry]:
        """Return the log's entries. See `AgentMemory.history`."""
        return self._memory.history(
            self.session_id, user_id=self.user_id, after=after, limit=limit, last=last
        )

    def contexts(self, *, after: int = 0, limit: int | None = None) -> list[SentContext]:
        """Return the contexts that models were sent. See `AgentMemory.contexts`."""
        return self._memory.contexts(
            self.session_id, user_id=self.user_id, after=after, limit=limit
        )

    def pop(self, count: int = 1) -> list[Message]:
        """Remove the newest messages. See `AgentMemory.pop`."""
        return self._memory.pop(self.session_id, count, user_id=self.user_id)

    def before_turn(self, message: Any) -> Turn:
        """Return the context for a turn. See `AgentMemory.before_turn`."""
        return self._memory.before_turn(self.session_id, message, user_id=self.user_id)

    def after_turn(
        self, turn: Turn, answer: Any, *, key: str | None = None, expected_end: int | None = None
    ) -> Head:
        """Store a turn of this session with its answer. See `AgentMemory.after_turn`.

        Raises:
            InvalidInput: The turn belongs to another session. Nothing was stored.
        """
        check_turn(turn)
        if turn.session_id != self.session_id:
            raise InvalidInput(
                f"The turn belongs to session {turn.session_id!r}, not {self.session_id!r}. Pass "
                "it to its own session. Nothing was stored."
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
        """Run a whole turn with a model. See `AgentMemory.completion`."""
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
        """Absorb all pending messages. See `AgentMemory.flush`."""
        return self._memory.flush(self.session_id, user_id=self.user_id)

    def end(self) -> list[Absorbed]:
        """Absorb pending messages and clear the scratchpad. See `AgentMemory.end`."""
        return self._memory.end(self.session_id, user_id=self.user_id)

    def delete(self) -> Receipt | None:
        """Delete the session. See `AgentMemory.delete`."""
        return self._memory.delete(self.session_id, user_id=self.user_id)

    def tools(self, format: str = "openai.chat") -> list[dict[str, Any]]:
        """Return the schemas of the memory's tools. See `AgentMemory.tools`."""
        return self._memory.tools(self.session_id, user_id=self.user_id, format=format)

    def call_tool(
        self, name: str, arguments: Mapping[str, Any] | str | None = None, *, key: str | None = None
    ) -> str:
        """Run a tool call of a model. See `AgentMemory.call_tool`."""
        return self._memory.call_tool(
            self.session_id, name, arguments, user_id=self.user_id, key=key
        )


@with_call_errors
class Session(BoundSession):
    """One conversation of one user. Made by `AgentMemory.session`.

    If the session belongs to another user than `user_id`, every call raises `SessionOfAnotherUser`
    and changes nothing. As a context manager, it calls `end` on exit.

    Attributes:
        session_id: The conversation.
        user_id: The user. With None, the owner is not checked.
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
        """Return the context. See `AgentMemory.get`."""
        return self._home.get(
            self.session_id,
            message,
            user_id=self.user_id,
            max_tokens=max_tokens,
            format=format,
            window=window,
        )

    def delete(self) -> Receipt:
        """Delete the session. See `AgentMemory.delete`."""
        return self._home.delete(self.session_id, user_id=self.user_id)

    def head(self) -> Head | None:
        """Return the head. See `AgentMemory.head`."""
        return self._home.head(self.session_id, user_id=self.user_id)

    def describe(self, metadata: dict[str, Any]) -> None:
        """Store the session's metadata. See `AgentMemory.describe`."""
        self._home.describe(self.session_id, metadata, user_id=self.user_id)

    def prune(self, max_tokens: int) -> Head:
        """Shorten the window. See `AgentMemory.prune`."""
        return self._home.prune(self.session_id, max_tokens, user_id=self.user_id)

    def pin(self, seq: int) -> None:
        """Keep a message in the window. See `AgentMemory.pin`."""
        self._home.pin(self.session_id, seq, user_id=self.user_id)

    def unpin(self, seq: int) -> None:
        """Undo `pin`. See `AgentMemory.unpin`."""
        self._home.unpin(self.session_id, seq, user_id=self.user_id)

    def edit(self, change: Callable[[list[Entry]], Iterable[Any]]) -> Head:
        """Replace the log with the result of a function. See `AgentMemory.edit`."""
        return self._home.edit(self.session_id, change, user_id=self.user_id)

    def checkpoint(self) -> Receipt:
        """Return a receipt for the stored messages. See `AgentMemory.checkpoint`."""
        return self._home.checkpoint(self.session_id, user_id=self.user_id)

    def regenerate(self) -> Turn:
        """Return the context for another answer. See `AgentMemory.regenerate`."""
        return self._home.regenerate(self.session_id, user_id=self.user_id)

    def working(self) -> Scratchpad:
        """Return the session's scratchpad: a handle on JSON values by key.

        Raises:
            ConfigError: No `WorkingMemory` is configured.
        """
        parts = self._home.components
        scope = parts.guard.scope(self.user_id, self.session_id)
        return cast("Scratchpad", parts.open("working", scope))

    def owner(self) -> User:
        """Return a handle on the memory of the session's user, or of the session if it has none."""
        scope = self._home.components.guard.scope(self.user_id, self.session_id)
        return User(self._home, scope.user_id, self.session_id)

    def export(self, to: str | Path | TextIO) -> Exported:
        """Write a snapshot of the session: its log, its head, and the blocks' records of it.

        The snapshot is consistent: messages that are appended during the export are not included.
        Records of the user that belong to no session are not included either. Workers wait until
        the export ends. `operations.import_session` imports a snapshot.

        Args:
            to: A path or an open text file. A file at a path appears when it is complete, and only
                its owner can read it.

        Raises:
            InvalidInput: The session does not exist, or nothing can be written to `to`.
            StoreUnavailable: A worker held the session for a minute. Or the session was deleted or
                messages were removed during the export. An open text file is then incomplete, and
                `import_session` refuses it.
        """
        from agent_memory.engine.transfer.export import Exporter, written

        parts = self._home.components
        parts.guard.admit(self.session_id, self.user_id)
        with written(to) as file:
            return Exporter(parts).run(self.session_id, file.write, self.user_id)
