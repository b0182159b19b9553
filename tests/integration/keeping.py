"""What the tests of what is kept outright share: a memory that waits, over a SQLite file."""

from typing import Any

from agent_memory import AgentMemory, Block
from tests.kit import SECONDS


def opened(store: Any, *blocks: Block, **fields: Any) -> AgentMemory:
    """A memory that waits for its blocks: on a busy machine the first one is slow."""
    return AgentMemory(store=store, blocks=blocks, recall_timeout=SECONDS, **fields)
