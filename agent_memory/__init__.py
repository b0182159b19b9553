"""Memory for LLM agents: a token budget per session, long-term blocks per user, nothing lost.

The main names can be imported from here. Each loads on first use, so that `import agent_memory` is
quick. Other names are in `agent_memory.errors`, `agent_memory.core.records`,
`agent_memory.operations`, and each block's own module, such as `agent_memory.ltm_blocks.spatial`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_memory.core.lazy import lazily

if TYPE_CHECKING:
    from agent_memory.aio.memory import AsyncAgentMemory
    from agent_memory.composite.memory import CompositeMemory
    from agent_memory.config.settings import AgentMemoryConfig
    from agent_memory.core.context import MemoryContext
    from agent_memory.core.messages import Message
    from agent_memory.core.records import Entry, Head, Recall
    from agent_memory.core.redaction import Redactor
    from agent_memory.core.tokens.counter import TokenCounter
    from agent_memory.core.tools import Tool
    from agent_memory.core.turns import Turn
    from agent_memory.engine.deployment import Deployment
    from agent_memory.engine.memory import AgentMemory
    from agent_memory.engine.session import Session
    from agent_memory.engine.user import User
    from agent_memory.errors import (
        AgentMemoryError,
        ConfigError,
        InvalidInput,
        MissingExtra,
        ModelError,
        SessionOfAnotherUser,
        StoreError,
        ToolRefused,
    )
    from agent_memory.ltm_blocks.base import Block
    from agent_memory.ltm_blocks.extractive.block import ExtractiveMemory
    from agent_memory.ltm_blocks.extractive.history.fact import Fact
    from agent_memory.ltm_blocks.files.block import FileMemory
    from agent_memory.ltm_blocks.notes import NoteMemory
    from agent_memory.ltm_blocks.skills.block import SkillMemory
    from agent_memory.ltm_blocks.spatial.block import SpatialMemory
    from agent_memory.ltm_blocks.static import StaticMemory
    from agent_memory.ltm_blocks.vector import VectorMemory
    from agent_memory.ltm_blocks.working import WorkingMemory
    from agent_memory.standalone.chat_history import ChatHistory
    from agent_memory.standalone.indexes import VectorIndex, WordIndex
    from agent_memory.standalone.null import NullMemory
    from agent_memory.strategies.base import Chain, Strategy
    from agent_memory.strategies.bounded import ClearTools, FlushToLTM, Trim
    from agent_memory.strategies.summarize import Summarize

__version__ = "0.1.0"

_HOMES = {
    ".aio.memory": ("AsyncAgentMemory",),
    ".composite.memory": ("CompositeMemory",),
    ".config.settings": ("AgentMemoryConfig",),
    ".core.context": ("MemoryContext",),
    ".core.messages": ("Message",),
    ".core.records": (
        "Entry",
        "Head",
        "Recall",
    ),
    ".core.redaction": ("Redactor",),
    ".core.tokens.counter": ("TokenCounter",),
    ".core.tools": ("Tool",),
    ".core.turns": ("Turn",),
    ".engine.deployment": ("Deployment",),
    ".engine.memory": ("AgentMemory",),
    ".engine.session": ("Session",),
    ".engine.user": ("User",),
    ".errors": (
        "AgentMemoryError",
        "ConfigError",
        "InvalidInput",
        "MissingExtra",
        "ModelError",
        "SessionOfAnotherUser",
        "StoreError",
        "ToolRefused",
    ),
    ".ltm_blocks.base": ("Block",),
    ".ltm_blocks.extractive.block": ("ExtractiveMemory",),
    ".ltm_blocks.extractive.history.fact": ("Fact",),
    ".ltm_blocks.files.block": ("FileMemory",),
    ".ltm_blocks.notes": ("NoteMemory",),
    ".ltm_blocks.skills.block": ("SkillMemory",),
    ".ltm_blocks.spatial.block": ("SpatialMemory",),
    ".ltm_blocks.static": ("StaticMemory",),
    ".ltm_blocks.vector": ("VectorMemory",),
    ".ltm_blocks.working": ("WorkingMemory",),
    ".standalone.chat_history": ("ChatHistory",),
    ".standalone.null": ("NullMemory",),
    ".standalone.indexes": ("VectorIndex", "WordIndex"),
    ".strategies.base": ("Chain", "Strategy"),
    ".strategies.bounded": ("ClearTools", "FlushToLTM", "Trim"),
    ".strategies.summarize": ("Summarize",),
}

__all__ = [
    "AgentMemory",
    "AgentMemoryConfig",
    "AgentMemoryError",
    "AsyncAgentMemory",
    "Block",
    "Chain",
    "ChatHistory",
    "ClearTools",
    "CompositeMemory",
    "ConfigError",
    "Deployment",
    "Entry",
    "ExtractiveMemory",
    "Fact",
    "FileMemory",
    "FlushToLTM",
    "Head",
    "InvalidInput",
    "MemoryContext",
    "Message",
    "MissingExtra",
    "ModelError",
    "NoteMemory",
    "NullMemory",
    "Recall",
    "Redactor",
    "Session",
    "SessionOfAnotherUser",
    "SkillMemory",
    "SpatialMemory",
    "StaticMemory",
    "StoreError",
    "Strategy",
    "Summarize",
    "TokenCounter",
    "Tool",
    "ToolRefused",
    "Trim",
    "Turn",
    "User",
    "VectorIndex",
    "VectorMemory",
    "WordIndex",
    "WorkingMemory",
]

if not TYPE_CHECKING:
    __getattr__ = lazily(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
