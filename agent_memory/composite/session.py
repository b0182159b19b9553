"""`CompositeSession`: a composite's calls with the ids bound."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_memory.engine.session import BoundSession, Session

if TYPE_CHECKING:
    pass


class CompositeSession(BoundSession["CompositeMemory"]):
    """One conversation of one user; made by `CompositeMemory.session`."""

    @property
    def home(self) -> Session:
        """The session in its home: for its tools, its scratchpad, and its owner's memory."""
        home = self._memory.home(self.session_id, self.user_id)
        return home.session(self.session_id, self.user_id)
