"""What the tests of composites share: blocks that can be broken, memories that wait for theirs."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

from pydantic import Field

from agent_memory import AgentMemory, Block, CompositeMemory
from agent_memory.core.messages import Message
from agent_memory.core.records import Entry, Recall, Scope
from agent_memory.errors import StoreUnavailable
from agent_memory.stores.base import Store
from agent_memory.testing import watched
from tests.kit import SECONDS


class Reader(Block):
    """Only reads: says what it was given, once it may."""

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


class Outage:
    """A store that can be made to fail at some of its steps."""

    def __init__(self, store: Store) -> None:
        self.at: set[str] = set()
        self.then: Callable[[str], None] = lambda step: None
        self._inside = threading.local()
        self.store = watched(store, self._watch)

    def _watch(self, step: str) -> None:
        if step in self.at or "all" in self.at:
            raise StoreUnavailable(f"down at {step}")
        if not getattr(self._inside, "now", False):
            self._inside.now = True
            try:
                self.then(step)
            finally:
                self._inside.now = False


def said(text: str, role: str = "user", **fields: Any) -> dict[str, Any]:
    return {"role": role, "content": text, **fields}


def opened(*blocks: Block, store: Any = "memory://", **fields: Any) -> AgentMemory:
    return AgentMemory(store=store, blocks=list(blocks), recall_timeout=SECONDS, **fields)


def composed(members: dict[str, AgentMemory | Block], **settings: Any) -> CompositeMemory:
    """A composite that waits for its members: on a busy machine the first call is slow."""
    return CompositeMemory(members, **{"timeout": SECONDS, **settings})
