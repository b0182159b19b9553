"""`ForeignBlock`, which runs a duck-typed object as a block."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from agent_memory.ltm_blocks.base import Block

if TYPE_CHECKING:
    from agent_memory.core.messages import Message
    from agent_memory.core.records import Entry, Recall, Scope
    from agent_memory.core.turns import Turn


class ForeignBlock(Block):
    """Runs a duck-typed object as a block."""

    kind: Literal["foreign"] = "foreign"
    block: Any

    def get(
        self, scope: Scope, message: Message | None, limit: int
    ) -> list[Recall] | Awaitable[list[Recall]]:
        recalls: list[Recall] | Awaitable[list[Recall]] = self.block.get(scope, message, limit)
        return recalls

    def update(self, scope: Scope, entries: Sequence[Entry]) -> Awaitable[None] | None:
        result: Awaitable[None] | None = self.block.update(scope, entries)
        return result

    def turn_began(self, scope: Scope, turn: Turn) -> Awaitable[None] | None:
        return self._notify("turn_began", scope, turn)

    def turn_ended(
        self, scope: Scope, turn: Turn, said: Sequence[Message]
    ) -> Awaitable[None] | None:
        return self._notify("turn_ended", scope, turn, said)

    def _notify(self, name: str, *arguments: object) -> Awaitable[None] | None:
        """Call a method of the object if it has one of this name."""
        call: Callable[..., Awaitable[None] | None] | None = getattr(self.block, name, None)
        return None if call is None else call(*arguments)

    def delete(self, scope: Scope) -> Awaitable[None] | None:
        result: Awaitable[None] | None = self.block.delete(scope)
        return result
