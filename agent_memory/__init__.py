"""Memory for LLM agents: a token budget per session, long-term blocks per user, nothing lost.

The main names can be imported from here. Each loads on first use, so that `import agent_memory` is
quick. Other names are in `agent_memory.errors`, `agent_memory.core.records`,
`agent_memory.operations`, and each block's own module, such as `agent_memory.ltm_blocks.spatial`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_memory.core.lazy import lazily

if TYPE_CHECKING:
    from agent_memory.aio import AsyncAgentMemory as AsyncAgentMemory
    from agent_memory.composite.memory import CompositeMemory as CompositeMemory
    from agent_memory.config.settings import AgentMemoryConfig as AgentMemoryConfig
    from agent_memory.core.context import MemoryContext as MemoryContext
    from agent_memory.core.messages import Message as Message
    from agent_memory.core.records import Entry as Entry
    from agent_memory.core.records import Head as Head
    from agent_memory.core.records import Recall as Recall
    from agent_memory.core.redaction import Redactor as Redactor
    from agent_memory.core.token_counter import TokenCounter as TokenCounter
    from agent_memory.core.tools import Tool as Tool
    from agent_memory.core.turns import Turn as Turn
    from agent_memory.engine.deployment import Deployment as Deployment
    from agent_memory.engine.memory import AgentMemory as AgentMemory
    from agent_memory.engine.session import Session as Session
    from agent_memory.engine.user import User as User
    from agent_memory.errors import AgentMemoryError as AgentMemoryError
    from agent_memory.errors import ConfigError as ConfigError
    from agent_memory.errors import InvalidInput as InvalidInput
    from agent_memory.errors import MissingExtra as MissingExtra
    from agent_memory.errors import ModelError as ModelError
    from agent_memory.errors import SessionOfAnotherUser as SessionOfAnotherUser
    from agent_memory.errors import StoreError as StoreError
    from agent_memory.errors import ToolRefused as ToolRefused
    from agent_memory.ltm_blocks.base import Block as Block
    from agent_memory.ltm_blocks.extractive.block import ExtractiveMemory as ExtractiveMemory
    from agent_memory.ltm_blocks.extractive.history.fact import Fact as Fact
    from agent_memory.ltm_blocks.files.block import FileMemory as FileMemory
    from agent_memory.ltm_blocks.notes import NoteMemory as NoteMemory
    from agent_memory.ltm_blocks.skills.block import SkillMemory as SkillMemory
    from agent_memory.ltm_blocks.spatial.block import SpatialMemory as SpatialMemory
    from agent_memory.ltm_blocks.static import StaticMemory as StaticMemory
    from agent_memory.ltm_blocks.vector import VectorMemory as VectorMemory
    from agent_memory.ltm_blocks.working import WorkingMemory as WorkingMemory
    from agent_memory.standalone.chat_history import ChatHistory as ChatHistory
    from agent_memory.standalone.indexes import VectorIndex as VectorIndex
    from agent_memory.standalone.indexes import WordIndex as WordIndex
    from agent_memory.standalone.null import NullMemory as NullMemory
    from agent_memory.strategies.base import Chain as Chain
    from agent_memory.strategies.base import Strategy as Strategy
    from agent_memory.strategies.bounded import ClearTools as ClearTools
    from agent_memory.strategies.bounded import FlushToLTM as FlushToLTM
    from agent_memory.strategies.bounded import Trim as Trim
    from agent_memory.strategies.summarize import Summarize as Summarize

__version__ = "0.1.0"

_HOMES = {
    ".aio": ("AsyncAgentMemory",),
    ".composite.memory": ("CompositeMemory",),
    ".config.settings": ("AgentMemoryConfig",),
    ".core.context": ("MemoryContext",),
    ".core.messages": ("Message",),
    ".core.records": ("Entry", "Head", "Recall"),
    ".core.redaction": ("Redactor",),
    ".core.token_counter": ("TokenCounter",),
    ".core.tools": ("Tool",),
    ".core.turns": ("Turn",),
    ".engine.deployment": ("Deployment",),
    ".engine.memory": ("AgentMemory",),
    ".engine.session": ("Session",),
    ".engine.user": ("User",),
    ".errors": (
        *("AgentMemoryError", "ConfigError", "InvalidInput", "MissingExtra", "ModelError"),
        *("SessionOfAnotherUser", "StoreError", "ToolRefused"),
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

if not TYPE_CHECKING:
    __getattr__, __all__ = lazily(__name__, _HOMES)

    def __dir__():
        return [*__all__, "__version__"]
