"""Duck-typed blocks: objects with the three methods that are not a `Block`."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, Annotated, Protocol

from pydantic import BeforeValidator

from agent_memory.core.plugins import ByKind, offers
from agent_memory.ltm_blocks.base import Block

if TYPE_CHECKING:
    from agent_memory.core.messages import Message
    from agent_memory.core.records import Entry, Recall, Scope


class BlockLike(Protocol):
    """The methods of a block, sync or async. `name`, `turn_began` and `turn_ended` are optional."""

    def get(
        self, scope: Scope, message: Message | None, limit: int
    ) -> list[Recall] | Awaitable[list[Recall]]:
        """Return recalls; see `Block.get`."""
        ...

    def update(self, scope: Scope, entries: Sequence[Entry]) -> Awaitable[None] | None:
        """Absorb entries; see `Block.update`."""
        ...

    def delete(self, scope: Scope) -> Awaitable[None] | None:
        """Forget; see `Block.delete`."""
        ...


def adopt(value: object) -> object:
    """Return a duck-typed object as a block, named by its `name` or class; others unchanged."""
    if isinstance(value, Block | type) or not offers(value, BlockLike):
        return value
    from agent_memory.ltm_blocks.foreign import ForeignBlock

    own_name = getattr(value, "name", None)
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", type(value).__name__).lower().strip("_")
    return ForeignBlock(name=own_name if isinstance(own_name, str) else words, block=value)


BlockField = Annotated[Block, ByKind("agent_memory.ltm_blocks"), BeforeValidator(adopt)]
"""A block, a duck-typed object, or in configuration files a mapping with its `kind`."""
