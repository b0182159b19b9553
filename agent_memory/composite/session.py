"""`CompositeSession`: the calls of a composite with the ids bound."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from agent_memory.engine.session import BoundSession, Session

if TYPE_CHECKING:
    from agent_memory.composite.memory import CompositeMemory


class CompositeSession(BoundSession):
    """A session of a user, from `CompositeMemory.session`."""

    def __init__(self, memory: CompositeMemory, session_id: str, user_id: str | None) -> None:
        super().__init__(memory, session_id, user_id)
        self._composite = memory

    def tools(self, format: str = "openai.chat") -> list[dict[str, Any]]:
        """Return the schemas of all members' tools. See `CompositeMemory.tools`."""
        return self._composite.tools(self.session_id, user_id=self.user_id, format=format)

    def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | str | None = None,
        *,
        key: str | None = None,
    ) -> str:
        """Call a tool of a member. See `CompositeMemory.call_tool`."""
        whose = {"user_id": self.user_id, "key": key}
        return self._composite.call_tool(self.session_id, name, arguments, **whose)

    @property
    def home(self) -> Session:
        """The session in its home, for its scratchpad and its owner's memory."""
        home = self._composite.home(self.session_id, self.user_id)
        return home.session(self.session_id, self.user_id)
