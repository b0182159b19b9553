"""The calls about a whole turn, over all members, with the model and the tools of the home."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from agent_memory.core.context import MemoryContext
from agent_memory.core.messages import Message
from agent_memory.core.records import Head, Span
from agent_memory.core.tools import Tool
from agent_memory.core.turns import Turn
from agent_memory.engine.memory import AgentMemory
from agent_memory.engine.turn_calls import TurnCalls

if TYPE_CHECKING:
    from agent_memory.composite.memory import CompositeMemory


class HomeTurns(TurnCalls):
    """Reads and writes through a composite; counts, asks and runs tools as a session's home.

    Args:
        both: The composite.
        home: The home.
    """

    def __init__(self, both: CompositeMemory, home: AgentMemory) -> None:
        self._both = both
        self._home = home
        self.blocks = home.blocks
        self._parts, self._counter = home._parts, home._counter

    def get(
        self, session_id: str, message: Any = None, *, user_id: str | None = None
    ) -> MemoryContext:
        """As `CompositeMemory.get`."""
        return self._both.get(session_id, message, user_id=user_id)

    def update(self, session_id: str, message: Any, *, user_id: str | None = None) -> Head:
        """As `CompositeMemory.update`."""
        return self._both.update(session_id, message, user_id=user_id)

    def call_tool(
        self,
        session_id: str,
        name: str,
        arguments: Mapping[str, Any] | str | None = None,
        *,
        user_id: str | None = None,
    ) -> str:
        """As `AgentMemory.call_tool`, in the home."""
        return self._home.call_tool(session_id, name, arguments, user_id=user_id)

    def _replaced(self, turn: Turn, part: Span, said: Sequence[Message]) -> Head:
        return self._home._replaced(turn, part, said)

    def _toolbox(self) -> dict[str, Tool]:
        return self._home._toolbox()

    def _check(self, session_id: str | None, user_id: str | None) -> None:
        self._home._check(session_id, user_id)

    def _owned(self, session_id: str, user_id: str | None) -> Head | None:
        return self._home._owned(session_id, user_id)
