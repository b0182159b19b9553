"""Duck-typed blocks: objects with `get`, `update` and `delete` that do not subclass `Block`."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator

from agent_memory.core.plugins import ByKind
from agent_memory.ltm_blocks.base import Block

if TYPE_CHECKING:
    from agent_memory.core.messages import Message
    from agent_memory.core.records import Entry, Recall, Scope
    from agent_memory.core.turns import Turn


class ForeignBlock(Block):
    """Runs a duck-typed object as a block.

    The object's methods may be sync or async. Its `name`, `turn_began` and `turn_ended` are
    optional.
    """

    kind: Literal["foreign"] = "foreign"
    block: Any

    def get(
        self, scope: Scope, message: Message | None, limit: int
    ) -> list[Recall] | Awaitable[list[Recall]]:
        recalls: list[Recall] | Awaitable[list[Recall]] = self.block.get(scope, message, limit)
        return recalls

    def update(self, scope: Scope, entries: Sequence[Entry]) -> Awaitable[None] | None:
        return self._notify("update", scope, entries)

    def delete(self, scope: Scope) -> Awaitable[None] | None:
        return self._notify("delete", scope)

    def turn_began(self, scope: Scope, turn: Turn) -> Awaitable[None] | None:
        return self._notify("turn_began", scope, turn)

    def turn_ended(
        self, scope: Scope, turn: Turn, messages: Sequence[Message]
    ) -> Awaitable[None] | None:
        return self._notify("turn_ended", scope, turn, messages)

    def _notify(self, name: str, *arguments: object) -> Awaitable[None] | None:
        call: Callable[..., Awaitable[None] | None] | None = getattr(self.block, name, None)
        return None if call is None else call(*arguments)


def adopt(value: object) -> object:
    """Wrap a duck-typed object in a block, which has the name of the object or of its class.

    A `Block`, a class, and an object without the three methods are returned unchanged.
    """
    methods = ("get", "update", "delete")
    if isinstance(value, Block | type) or any(getattr(value, m, None) is None for m in methods):
        return value
    own_name = getattr(value, "name", None)
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", type(value).__name__).lower().strip("_")
    return ForeignBlock(name=own_name if isinstance(own_name, str) else words, block=value)


BlockField = Annotated[Block, ByKind("agent_memory.ltm_blocks"), BeforeValidator(adopt)]
"""A block, a duck-typed object, or (in configuration files) a mapping with a block's `kind`."""
