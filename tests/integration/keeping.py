"""Helper for tests of blocks that agents write to directly: a memory with a long time limit."""

from typing import Any

from agent_memory import AgentMemory, Block
from tests.kit import SECONDS


def opened(store: Any, *blocks: Block, **fields: Any) -> AgentMemory:
    """Open a memory with a long recall timeout: on a busy machine the first recall is slow."""
    return AgentMemory(store=store, blocks=blocks, recall_timeout=SECONDS, **fields)
