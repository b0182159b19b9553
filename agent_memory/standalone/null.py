"""`NullMemory`: the calls of `AgentMemory`, and remembers nothing."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from agent_memory.config.settings import AgentMemoryConfig
from agent_memory.core.kinds import find_kind
from agent_memory.core.messages import Message
from agent_memory.core.records import Head, empty_head
from agent_memory.engine.memory import AgentMemory
from agent_memory.errors import ConfigError
from agent_memory.ltm_blocks.base import Block, NoteBlock
from agent_memory.stores.memory import MemoryStore

if TYPE_CHECKING:
    from agent_memory.engine.transfer.snapshots.reading import Reading
    from agent_memory.ltm_blocks.skills.block import Skills

_NOTHING: dict[str, Any] = {
    "store": "memory://", "system_store": None, "encryption": None, "overflow": None, "blocks": (),
    "overflow_mode": "inline",
}  # fmt: skip


class NullMemory(AgentMemory):
    """Switches memory off without touching the code that uses it.

    Messages are still checked, so that what is refused by the real memory is refused here; and
    `completion` still asks the model. A handle, such as `notes` gives, knows what it was told
    itself, and no other.

    Args:
        config: As for `AgentMemory`; stores and blocks are left out.
        **fields: As for `AgentMemory`.
    """

    def __init__(self, config: AgentMemoryConfig | None = None, **fields: Any) -> None:
        super().__init__(config, **{**fields, **_NOTHING})

    def __repr__(self) -> str:
        return "NullMemory()"

    def update(self, session_id: str, message: Any, *, user_id: str | None = None) -> Head:
        """Check the messages and forget them."""
        self._check(session_id, user_id)
        for one in message if isinstance(message, list | tuple) else [message]:
            Message.of(one)
        return empty_head(session_id, user_id, datetime.now(UTC))

    def _bring(self, reading: Reading) -> Head:
        for _ in reading.items():  # checked, and forgotten
            pass
        return reading.head

    def skills(self, user_id: str | None = None, *, session_id: str | None = None) -> Skills:
        """There are none: they lie in a folder, and are nothing that was remembered.

        Raises:
            ConfigError: Always.
        """
        raise ConfigError("NullMemory has no folder of skills. Use AgentMemory for one.")

    @property
    def _notes(self) -> NoteBlock:
        block = self._block("notes")
        assert isinstance(block, NoteBlock)
        return block

    def _block(self, kind: str) -> Block:
        block = find_kind("agent_memory.ltm_blocks", kind)()
        assert isinstance(block, Block)
        return block.bind(replace(self._parts.services.resources, store=MemoryStore()))
