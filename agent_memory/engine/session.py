"""`Session`: a handle for one session of a memory."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TextIO, TypeVar, cast

from agent_memory.core.notices import with_call_errors
from agent_memory.core.records import Absorbed, Head, Recall
from agent_memory.core.turns import Turn, check_turn
from agent_memory.engine.memory import AgentMemory
from agent_memory.engine.user import User
from agent_memory.errors import InvalidInput

if TYPE_CHECKING:
    from agent_memory.composite.memory import CompositeMemory
    from agent_memory.engine.transfer.snapshot import Exported
    from agent_memory.ltm_blocks.working import Scratchpad

P = ParamSpec("P")
T = TypeVar("T")

_OWN = ("session_id", "user_id")


def bound(call: Callable[Concatenate[Any, str, P], T]) -> Callable[Concatenate[Any, P], T]:
    """Return a method that makes a memory's call for the session and the user of a handle.

    The method has no parameters for these ids, although type checkers accept `user_id`.
    """
    name, signature = call.__name__, inspect.signature(call)
    left = [each for each in signature.parameters.values() if each.name not in _OWN]

    def method(self: BoundSession, /, *args: P.args, **kwargs: P.kwargs) -> T:
        of_memory: Callable[..., T] = getattr(self._memory, name)
        return of_memory(self.session_id, *args, user_id=self.user_id, **kwargs)

    summary = (inspect.getdoc(call) or "").partition("\n")[0]
    method.__name__, method.__qualname__ = name, f"Session.{name}"
    method.__doc__ = f"{summary} See `AgentMemory.{name}`."
    method.__annotations__ = dict(inspect.unwrap(call).__annotations__)
    method.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]
    return method


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

    update = bound(AgentMemory.update)
    history = bound(AgentMemory.history)
    contexts = bound(AgentMemory.contexts)
    pop = bound(AgentMemory.pop)
    before_turn = bound(AgentMemory.before_turn)
    completion = bound(AgentMemory.completion)  # type: ignore[arg-type]
    call_tool = bound(AgentMemory.call_tool)
    end = bound(AgentMemory.end)

    def search(self, query: str, *, limit: int = 10) -> list[Recall]:
        """Search the user's memory. See `AgentMemory.search`.

        For a session without a user, search the memory of the session.
        """
        if self.user_id is None:
            return self._memory.search(query, session_id=self.session_id, limit=limit)
        self.update([])  # raises an error if the session belongs to another user
        return self._memory.search(query, user_id=self.user_id, limit=limit)

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

    def flush(self) -> list[Absorbed]:
        """Absorb all pending messages. See `AgentMemory.flush`."""
        return self._memory.flush(self.session_id, user_id=self.user_id)

    def tools(self, format: str = "openai.chat") -> list[dict[str, Any]]:
        """Return the schemas of the memory's tools. See `AgentMemory.tools`."""
        return self._memory.tools(self.session_id, user_id=self.user_id, format=format)


@with_call_errors
class Session(BoundSession):
    """One conversation of one user, from `AgentMemory.session`.

    If the session belongs to another user than `user_id`, every call raises `SessionOfAnotherUser`
    and changes nothing. As a context manager, a `Session` calls `end` on exit.

    Attributes:
        session_id: The conversation.
        user_id: The user. With None, the owner is not checked.
    """

    _memory: AgentMemory

    get = bound(AgentMemory.get)
    delete = bound(AgentMemory.delete)
    head = bound(AgentMemory.head)
    describe = bound(AgentMemory.describe)
    prune = bound(AgentMemory.prune)
    pin = bound(AgentMemory.pin)
    unpin = bound(AgentMemory.unpin)
    edit = bound(AgentMemory.edit)
    checkpoint = bound(AgentMemory.checkpoint)
    regenerate = bound(AgentMemory.regenerate)

    def working(self) -> Scratchpad:
        """Return the session's scratchpad: a handle on JSON values by key.

        Raises:
            ConfigError: No `WorkingMemory` is configured.
        """
        parts = self._memory.components
        scope = parts.guard.scope(self.user_id, self.session_id)
        return cast("Scratchpad", parts.open("working", scope))

    def owner(self) -> User:
        """Return a handle on the memory of the session's user, or of the session if it has none."""
        scope = self._memory.components.guard.scope(self.user_id, self.session_id)
        return User(self._memory, scope.user_id, self.session_id)

    def export(self, to: str | Path | TextIO) -> Exported:
        """Write a snapshot of the session: its log, its head, and its records in blocks.

        The snapshot is consistent. It excludes messages that are appended during the export, and
        records of the user that belong to no session. Workers wait until the export ends.
        `operations.import_session` imports a snapshot.

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

        parts = self._memory.components
        parts.guard.admit(self.session_id, self.user_id)
        with written(to) as file:
            return Exporter(parts).run(self.session_id, file.write, self.user_id)
