"""The calls of `AgentMemory` that open what a block keeps for somebody: notes, files, places."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, TypeVar

from agent_memory.engine.calls import Calls
from agent_memory.errors import ConfigError

if TYPE_CHECKING:
    from agent_memory.ltm_blocks.base import Block
    from agent_memory.ltm_blocks.files.block import Files
    from agent_memory.ltm_blocks.notes import Notebook, NoteMemory
    from agent_memory.ltm_blocks.skills.block import Skills
    from agent_memory.ltm_blocks.spatial.block import Places
    from agent_memory.ltm_blocks.working import Scratchpad

    B = TypeVar("B", bound=Block)


class HandleCalls(Calls):
    """What is kept outright, by whom it belongs to.

    Each call gives a handle with the scope bound. All but `working` and `skills` want a `user_id`,
    or the `session_id` of a session: that session's user then, or the session itself where it has
    none.
    """

    def working(self, session_id: str, *, user_id: str | None = None) -> Scratchpad:
        """The scratchpad of a session: JSON values by key.

        Raises:
            ConfigError: No `WorkingMemory` is configured.
            SessionOfAnotherUser: The session belongs to another user.
        """
        from agent_memory.ltm_blocks.working import WorkingMemory

        return self._block(WorkingMemory).open(self._scope(user_id, session_id))

    def notes(self, user_id: str | None = None, *, session_id: str | None = None) -> Notebook:
        """What was noted outright, by people or by a model. Needs no block; `get` recalls it where
        a `NoteMemory` is configured.

        Raises:
            InvalidInput: Neither user nor session is named.
        """
        return self._notes.open(self._scope(user_id, session_id))

    def files(self, user_id: str | None = None, *, session_id: str | None = None) -> Files:
        """The files that a model keeps under /memories.

        Raises:
            ConfigError: No `FileMemory` is configured.
            InvalidInput: Neither user nor session is named.
        """
        from agent_memory.ltm_blocks.files.block import FileMemory

        return self._block(FileMemory).open(self._scope(user_id, session_id))

    def spatial(self, user_id: str | None = None, *, session_id: str | None = None) -> Places:
        """What was observed, and where.

        Raises:
            ConfigError: No `SpatialMemory` is configured.
            InvalidInput: Neither user nor session is named.
        """
        from agent_memory.ltm_blocks.spatial.block import SpatialMemory

        return self._block(SpatialMemory).open(self._scope(user_id, session_id))

    def skills(self, user_id: str | None = None, *, session_id: str | None = None) -> Skills:
        """Procedures, as Markdown files: with a user (or session) everybody's and their own, else
        everybody's.

        Raises:
            ConfigError: No `SkillMemory` is configured.
        """
        from agent_memory.core.records import Scope
        from agent_memory.ltm_blocks.skills.block import SkillMemory

        block = self._block(SkillMemory)
        if user_id is None and session_id is None:
            self._check(None, None)
            return block.open(Scope())
        return block.open(self._scope(user_id, session_id))

    def _block(self, wanted: type[B]) -> B:
        """The first configured block of a kind."""
        for block in self.blocks.values():
            if isinstance(block, wanted):
                return block
        raise ConfigError(
            f"No {wanted.__name__} is configured. Add one: AgentMemory(blocks=[{wanted.__name__}"
            "(...)])."
        )

    @property
    @abstractmethod
    def _notes(self) -> NoteMemory:
        """Where notes are kept, whatever is configured."""
