"""`NullMemory`: an `AgentMemory` that stores nothing."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from itertools import chain
from typing import TYPE_CHECKING, Any, cast

from agent_memory.config.settings import AgentMemoryConfig
from agent_memory.core.messages import Message
from agent_memory.core.plugins import find_kind
from agent_memory.core.records import Head, Scope
from agent_memory.engine.assembly import Components
from agent_memory.engine.memory import AgentMemory
from agent_memory.errors import ConfigError
from agent_memory.stores.base import Store
from agent_memory.stores.sql.store import MemoryStore

if TYPE_CHECKING:
    from agent_memory.engine.transfer.reading import Reading
    from agent_memory.ltm_blocks.base import Block, FactBlock

_NOTHING: dict[str, Any] = {
    "store": "memory://", "system_store": None, "encryption": None, "overflow": None, "blocks": (),
    "overflow_mode": "inline",
}  # fmt: skip


class _NullComponents(Components):
    """Components that give each handle its own store in memory."""

    def open(self, kind: str, scope: Scope) -> Any:
        if kind == "skills":
            raise ConfigError("NullMemory has no folder of skills. Use AgentMemory for one.")
        block = cast("type[Block]", find_kind("agent_memory.ltm_blocks", kind)).model_validate({})
        return block.bind(replace(self.resources, store=MemoryStore())).open(scope)

    def needed_fact_blocks(self) -> list[FactBlock]:
        return []

    def _value_store(self) -> Store:
        return MemoryStore()


class NullMemory(AgentMemory):
    """An `AgentMemory` that stores nothing, to disable memory without changing code.

    Messages are validated as in an `AgentMemory`, and `completion` calls the model. Each handle,
    such as a user's notes, has its own data in this process, which no other handle sees.

    Args:
        config: See `AgentMemory`. Stores and blocks are ignored.
        **fields: See `AgentMemory`.
    """

    _components = _NullComponents

    def __init__(self, config: AgentMemoryConfig | None = None, **fields: Any) -> None:
        super().__init__(config, **{**fields, **_NOTHING})

    def __repr__(self) -> str:
        return "NullMemory()"

    def update(
        self,
        session_id: str,
        message: Any,
        *,
        user_id: str | None = None,
        key: str | None = None,
        expected_end: int | None = None,
    ) -> Head:
        """Validate the messages and discard them."""
        self._guard.check(session_id, user_id)
        for item in message if isinstance(message, list | tuple) else [message]:
            Message.all_of(item)
        return Head(session_id, user_id, created_at=datetime.now(UTC))

    def _bring(self, reading: Reading) -> Head:
        for _ in chain(reading.entries(), reading.records()):  # validated and discarded
            pass
        return reading.head
