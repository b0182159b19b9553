"""The calls of `AgentMemory` that open what a block keeps for somebody: notes, files, places."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from agent_memory.core.kinds import find_kind
from agent_memory.engine.calls import Calls
from agent_memory.errors import ConfigError

if TYPE_CHECKING:
    from agent_memory.ltm_blocks.base import Block, NoteBlock
    from agent_memory.ltm_blocks.files.block import Files
    from agent_memory.ltm_blocks.notes import Notebook
    from agent_memory.ltm_blocks.skills.block import Skills
    from agent_memory.ltm_blocks.spatial.block import Places
    from agent_memory.ltm_blocks.working import Scratchpad


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
        handle: Scratchpad = self._block("working").open(self._scope(user_id, session_id))
        return handle

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
        handle: Files = self._block("files").open(self._scope(user_id, session_id))
        return handle

    def spatial(self, user_id: str | None = None, *, session_id: str | None = None) -> Places:
        """What was observed, and where.

        Raises:
            ConfigError: No `SpatialMemory` is configured.
            InvalidInput: Neither user nor session is named.
        """
        handle: Places = self._block("spatial").open(self._scope(user_id, session_id))
        return handle

    def skills(self, user_id: str | None = None, *, session_id: str | None = None) -> Skills:
        """Procedures, as Markdown files: with a user (or session) everybody's and their own, else
        everybody's.

        Raises:
            ConfigError: No `SkillMemory` is configured.
        """
        from agent_memory.core.records import Scope

        block, scope = self._block("skills"), Scope()
        if user_id is None and session_id is None:
            self._check(None, None)
        else:
            scope = self._scope(user_id, session_id)
        handle: Skills = block.open(scope)
        return handle

    def _block(self, kind: str) -> Block:
        """The first configured block of a kind, or of a class made from that kind's."""
        wanted = find_kind("agent_memory.ltm_blocks", kind)
        for block in self.blocks.values():
            if isinstance(block, wanted):
                return block
        raise ConfigError(
            f"No {wanted.__name__} is configured. Add one: AgentMemory(blocks=[{wanted.__name__}"
            "(...)])."
        )

    @property
    @abstractmethod
    def _notes(self) -> NoteBlock:
        """Where notes are kept, whatever is configured."""
