"""Helpers for tests of composites: blocks that can be broken, and memories without time limits."""

from collections.abc import Callable, Sequence
from typing import Any

from pydantic import Field

from agent_memory import AgentMemory, Block, CompositeMemory, Message
from agent_memory.core.records import Entry, Recall, Scope
from tests.kit import SECONDS


class Reader(Block):
    """A block that only reads: it returns one text, after calling `before`."""

    kind: str = "reader"
    says: str = "What it knows."
    before: Callable[[], object] = lambda: None
    scopes: list[Scope] = Field(default_factory=list)

    @property
    def absorbs(self) -> bool:
        return False

    def get(self, scope: Scope, message: Message | None, limit: int) -> list[Recall]:
        self.scopes.append(scope)
        self.before()
        return [Recall(self.name, "r", self.says, 1.0)]

    def update(self, scope: Scope, entries: Sequence[Entry]) -> None:
        raise AssertionError("nothing is told to it")

    def delete(self, scope: Scope) -> None:
        raise AssertionError("it keeps nothing")


def opened(*blocks: Block, store: Any = "memory://", **fields: Any) -> AgentMemory:
    return AgentMemory(store=store, blocks=list(blocks), recall_timeout=SECONDS, **fields)


def composed(members: dict[str, AgentMemory | Block], **settings: Any) -> CompositeMemory:
    """Return a composite with a long timeout: on a busy machine the first call is slow."""
    return CompositeMemory(members, **{"timeout": SECONDS, **settings})
