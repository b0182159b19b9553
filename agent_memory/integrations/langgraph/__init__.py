"""A store and a checkpointer for LangGraph that use an `AgentMemory`.

graph = builder.compile(store=AgentMemoryStore(memory), checkpointer=AgentMemorySaver(memory))
"""

from __future__ import annotations

from agent_memory.errors import MissingExtra

try:
    import langgraph.checkpoint.base
    import langgraph.store.base  # noqa: F401
except ImportError as error:
    raise MissingExtra("LangGraph's store and checkpointer", "langgraph") from error

from agent_memory.integrations.langgraph.saver import AgentMemorySaver
from agent_memory.integrations.langgraph.store import AgentMemoryStore

__all__ = ["AgentMemorySaver", "AgentMemoryStore"]
