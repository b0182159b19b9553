"""Memory for LLM agents: a token budget per session, long-term blocks per user, nothing lost.

Every public name can be imported from here; each loads when it is first used, so that
`import agent_memory` is quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_memory.core.lazy import lazily

if TYPE_CHECKING:
    from agent_memory.aio.memory import AsyncAgentMemory
    from agent_memory.aio.session import AsyncSession
    from agent_memory.aio.streams import AsyncCompletionStream
    from agent_memory.composite.memory import CompositeMemory
    from agent_memory.composite.session import CompositeSession
    from agent_memory.config.settings import AgentMemoryConfig
    from agent_memory.core.context import MemoryContext
    from agent_memory.core.messages import Message
    from agent_memory.core.records import (
        Absorbed,
        DeadLetter,
        Entry,
        Head,
        Lease,
        Recall,
        Scope,
        Span,
        Summary,
    )
    from agent_memory.core.redaction import Redactor
    from agent_memory.core.tokens.counter import TokenCounter
    from agent_memory.core.tools import Arguments, Tool
    from agent_memory.core.turns import Turn
    from agent_memory.engine.deployment import Deployment, Memories
    from agent_memory.engine.loop.conversing import CompletionStream
    from agent_memory.engine.memory import AgentMemory
    from agent_memory.engine.rebuilding import rebuild
    from agent_memory.engine.session import Session
    from agent_memory.engine.sharing.shared import SharedMemory
    from agent_memory.engine.sharing.shares import Share
    from agent_memory.engine.stats import Progress, Stats
    from agent_memory.engine.transfer.migration.migrate import migrate
    from agent_memory.engine.transfer.migration.steps import Migrated, MigrationStep
    from agent_memory.engine.transfer.snapshots.writing import Exported
    from agent_memory.errors import (
        AccessDenied,
        AgentMemoryError,
        ConfigError,
        ContextTooLong,
        DimensionMismatch,
        InvalidBudget,
        InvalidId,
        InvalidInput,
        InvalidMessage,
        InvalidShares,
        InvalidSnapshot,
        LeaseLost,
        MemoryClosed,
        MessageTooLarge,
        MissingExtra,
        ModelError,
        ModelForbidden,
        ModelOutputInvalid,
        ModelRefused,
        ModelRequired,
        ModelUnavailable,
        SchemaTooNew,
        SessionDeleting,
        SessionExists,
        SessionOfAnotherUser,
        StoreError,
        StoreUnavailable,
        ToolRefused,
        Undecryptable,
        UnknownKind,
        UnknownStore,
        UnsupportedOperation,
    )
    from agent_memory.ltm_blocks.base import Block, FactBlock, KeepingBlock
    from agent_memory.ltm_blocks.extractive.block import ExtractiveMemory
    from agent_memory.ltm_blocks.extractive.history.auditing import Change
    from agent_memory.ltm_blocks.extractive.history.fact import Evidence, Fact
    from agent_memory.ltm_blocks.extractive.history.scoring import ImportanceScorer
    from agent_memory.ltm_blocks.extractive.history.staleness import Stale, StalenessDetector
    from agent_memory.ltm_blocks.files.block import FileMemory, Files
    from agent_memory.ltm_blocks.notes import Note, Notebook, NoteMemory
    from agent_memory.ltm_blocks.skills.block import SkillMemory, Skills
    from agent_memory.ltm_blocks.skills.skill import BrokenSkill, Skill
    from agent_memory.ltm_blocks.spatial.block import SpatialMemory
    from agent_memory.ltm_blocks.spatial.observation import Observation, Sighting
    from agent_memory.ltm_blocks.spatial.places import Places
    from agent_memory.ltm_blocks.static import StaticMemory
    from agent_memory.ltm_blocks.vector import VectorMemory
    from agent_memory.ltm_blocks.working import Scratchpad, WorkingMemory
    from agent_memory.standalone.chat_history import ChatHistory
    from agent_memory.standalone.null import NullMemory
    from agent_memory.standalone.vector_index import VectorIndex
    from agent_memory.standalone.vector_items import Item, Match
    from agent_memory.strategies.base import Strategy
    from agent_memory.strategies.chain import Chain
    from agent_memory.strategies.flush import FlushToLTM
    from agent_memory.strategies.summarize import Summarize
    from agent_memory.strategies.trim import Trim

__version__ = "0.1.0"

_HOMES = {
    ".composite.memory": ("CompositeMemory",),
    ".composite.session": ("CompositeSession",),
    ".standalone.chat_history": ("ChatHistory",),
    ".config.settings": ("AgentMemoryConfig",),
    ".core.context": ("MemoryContext",),
    ".engine.deployment": ("Deployment", "Memories"),
    ".engine.memory": ("AgentMemory",),
    ".errors": (
        "AccessDenied",
        "AgentMemoryError",
        "ConfigError",
        "ContextTooLong",
        "DimensionMismatch",
        "InvalidBudget",
        "InvalidId",
        "InvalidInput",
        "InvalidMessage",
        "InvalidShares",
        "InvalidSnapshot",
        "LeaseLost",
        "MemoryClosed",
        "MessageTooLarge",
        "MissingExtra",
        "ModelError",
        "ModelForbidden",
        "ModelOutputInvalid",
        "ModelRefused",
        "ModelRequired",
        "ModelUnavailable",
        "SchemaTooNew",
        "SessionDeleting",
        "SessionExists",
        "SessionOfAnotherUser",
        "StoreError",
        "StoreUnavailable",
        "ToolRefused",
        "Undecryptable",
        "UnknownKind",
        "UnknownStore",
        "UnsupportedOperation",
    ),
    ".ltm_blocks.extractive.history.auditing": ("Change",),
    ".ltm_blocks.extractive.history.fact": ("Evidence", "Fact"),
    ".ltm_blocks.extractive.history.scoring": ("ImportanceScorer",),
    ".ltm_blocks.extractive.history.staleness": ("Stale", "StalenessDetector"),
    ".ltm_blocks.base": ("Block", "FactBlock", "KeepingBlock"),
    ".ltm_blocks.extractive.block": ("ExtractiveMemory",),
    ".ltm_blocks.static": ("StaticMemory",),
    ".ltm_blocks.vector": ("VectorMemory",),
    ".core.messages": ("Message",),
    ".standalone.null": ("NullMemory",),
    ".core.records": (
        "Absorbed",
        "DeadLetter",
        "Entry",
        "Head",
        "Lease",
        "Recall",
        "Scope",
        "Span",
        "Summary",
    ),
    ".core.redaction": ("Redactor",),
    ".engine.transfer.migration.migrate": ("migrate",),
    ".engine.transfer.migration.steps": (
        "Migrated",
        "MigrationStep",
    ),
    ".engine.rebuilding": ("rebuild",),
    ".engine.session": ("Session",),
    ".engine.sharing.shared": ("SharedMemory",),
    ".engine.sharing.shares": ("Share",),
    ".engine.stats": ("Progress", "Stats"),
    ".strategies.base": ("Strategy",),
    ".strategies.chain": ("Chain",),
    ".strategies.flush": ("FlushToLTM",),
    ".strategies.summarize": ("Summarize",),
    ".strategies.trim": ("Trim",),
    ".core.tokens.counter": ("TokenCounter",),
    ".aio.memory": ("AsyncAgentMemory",),
    ".aio.session": ("AsyncSession",),
    ".aio.streams": ("AsyncCompletionStream",),
    ".engine.loop.conversing": ("CompletionStream",),
    ".ltm_blocks.files.block": (
        "FileMemory",
        "Files",
    ),
    ".ltm_blocks.notes": (
        "Note",
        "NoteMemory",
        "Notebook",
    ),
    ".ltm_blocks.skills.block": (
        "SkillMemory",
        "Skills",
    ),
    ".ltm_blocks.skills.skill": (
        "BrokenSkill",
        "Skill",
    ),
    ".engine.transfer.snapshots.writing": ("Exported",),
    ".ltm_blocks.spatial.block": ("SpatialMemory",),
    ".ltm_blocks.spatial.places": ("Places",),
    ".ltm_blocks.spatial.observation": (
        "Observation",
        "Sighting",
    ),
    ".ltm_blocks.working": (
        "Scratchpad",
        "WorkingMemory",
    ),
    ".core.tools": (
        "Arguments",
        "Tool",
    ),
    ".core.turns": ("Turn",),
    ".standalone.vector_index": ("VectorIndex",),
    ".standalone.vector_items": (
        "Item",
        "Match",
    ),
}

__all__ = [
    "Absorbed",
    "AccessDenied",
    "AgentMemory",
    "AgentMemoryConfig",
    "AgentMemoryError",
    "Arguments",
    "AsyncAgentMemory",
    "AsyncCompletionStream",
    "AsyncSession",
    "Block",
    "BrokenSkill",
    "Chain",
    "Change",
    "ChatHistory",
    "CompletionStream",
    "CompositeMemory",
    "CompositeSession",
    "ConfigError",
    "ContextTooLong",
    "DeadLetter",
    "Deployment",
    "DimensionMismatch",
    "Entry",
    "Evidence",
    "Exported",
    "ExtractiveMemory",
    "Fact",
    "FactBlock",
    "FileMemory",
    "Files",
    "FlushToLTM",
    "Head",
    "ImportanceScorer",
    "InvalidBudget",
    "InvalidId",
    "InvalidInput",
    "InvalidMessage",
    "InvalidShares",
    "InvalidSnapshot",
    "Item",
    "KeepingBlock",
    "Lease",
    "LeaseLost",
    "Match",
    "Memories",
    "MemoryClosed",
    "MemoryContext",
    "Message",
    "MessageTooLarge",
    "Migrated",
    "MigrationStep",
    "MissingExtra",
    "ModelError",
    "ModelForbidden",
    "ModelOutputInvalid",
    "ModelRefused",
    "ModelRequired",
    "ModelUnavailable",
    "Note",
    "NoteMemory",
    "Notebook",
    "NullMemory",
    "Observation",
    "Places",
    "Progress",
    "Recall",
    "Redactor",
    "SchemaTooNew",
    "Scope",
    "Scratchpad",
    "Session",
    "SessionDeleting",
    "SessionExists",
    "SessionOfAnotherUser",
    "Share",
    "SharedMemory",
    "Sighting",
    "Skill",
    "SkillMemory",
    "Skills",
    "Span",
    "SpatialMemory",
    "Stale",
    "StalenessDetector",
    "StaticMemory",
    "Stats",
    "StoreError",
    "StoreUnavailable",
    "Strategy",
    "Summarize",
    "Summary",
    "TokenCounter",
    "Tool",
    "ToolRefused",
    "Trim",
    "Turn",
    "Undecryptable",
    "UnknownKind",
    "UnknownStore",
    "UnsupportedOperation",
    "VectorIndex",
    "VectorMemory",
    "WorkingMemory",
    "migrate",
    "rebuild",
]

if not TYPE_CHECKING:
    __getattr__ = lazily(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
