"""Memory for LLM agents: a token budget per session, long-term blocks per user, nothing lost.

Every public name can be imported from here; each loads when it is first used, so that
`import agent_memory` is quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_memory.lazy import lazily

if TYPE_CHECKING:
    from agent_memory.aio.memory import AsyncAgentMemory
    from agent_memory.aio.session import AsyncSession
    from agent_memory.aio.streams import AsyncCompletionStream
    from agent_memory.chat_history import ChatHistory
    from agent_memory.composite.memory import CompositeMemory
    from agent_memory.composite.session import CompositeSession
    from agent_memory.config import AgentMemoryConfig
    from agent_memory.context import MemoryContext
    from agent_memory.deployment import Deployment, Memories
    from agent_memory.engine.conversing import CompletionStream
    from agent_memory.engine.memory import AgentMemory
    from agent_memory.engine.migration.migrate import migrate
    from agent_memory.engine.migration.steps import Migrated, MigrationStep
    from agent_memory.engine.rebuilding import rebuild
    from agent_memory.engine.session import Session
    from agent_memory.engine.shared import SharedMemory
    from agent_memory.engine.shares import Share
    from agent_memory.engine.stats import Progress, Stats
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
    from agent_memory.facts.auditing import Change
    from agent_memory.facts.fact import Evidence, Fact
    from agent_memory.facts.scoring import ImportanceScorer
    from agent_memory.facts.staleness import Stale, StalenessDetector
    from agent_memory.ltm_blocks.base import Block, FactBlock, KeepingBlock
    from agent_memory.ltm_blocks.extractive import ExtractiveMemory
    from agent_memory.ltm_blocks.files import FileMemory, Files
    from agent_memory.ltm_blocks.notes import Note, Notebook, NoteMemory
    from agent_memory.ltm_blocks.skills import SkillMemory, Skills
    from agent_memory.ltm_blocks.spatial import SpatialMemory
    from agent_memory.ltm_blocks.spatial_places import Places
    from agent_memory.ltm_blocks.static import StaticMemory
    from agent_memory.ltm_blocks.vector import VectorMemory
    from agent_memory.ltm_blocks.working import Scratchpad, WorkingMemory
    from agent_memory.messages import Message
    from agent_memory.null import NullMemory
    from agent_memory.records import (
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
    from agent_memory.redaction import Redactor
    from agent_memory.skills.skill import BrokenSkill, Skill
    from agent_memory.snapshots.writing import Exported
    from agent_memory.spatial.observation import Observation, Sighting
    from agent_memory.strategies.base import Strategy
    from agent_memory.strategies.chain import Chain
    from agent_memory.strategies.flush import FlushToLTM
    from agent_memory.strategies.summarize import Summarize
    from agent_memory.strategies.trim import Trim
    from agent_memory.tokens.counter import TokenCounter
    from agent_memory.tools import Arguments, Tool
    from agent_memory.turns import Turn
    from agent_memory.vector_index import VectorIndex
    from agent_memory.vector_items import Item, Match

__version__ = "0.1.0"

_HOMES = {
    ".composite.memory": ("CompositeMemory",),
    ".composite.session": ("CompositeSession",),
    ".chat_history": ("ChatHistory",),
    ".config": ("AgentMemoryConfig",),
    ".context": ("MemoryContext",),
    ".deployment": ("Deployment", "Memories"),
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
    ".facts.auditing": ("Change",),
    ".facts.fact": ("Evidence", "Fact"),
    ".facts.scoring": ("ImportanceScorer",),
    ".facts.staleness": ("Stale", "StalenessDetector"),
    ".ltm_blocks.base": ("Block", "FactBlock", "KeepingBlock"),
    ".ltm_blocks.extractive": ("ExtractiveMemory",),
    ".ltm_blocks.static": ("StaticMemory",),
    ".ltm_blocks.vector": ("VectorMemory",),
    ".messages": ("Message",),
    ".null": ("NullMemory",),
    ".records": (
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
    ".redaction": ("Redactor",),
    ".engine.migration.migrate": ("migrate",),
    ".engine.migration.steps": (
        "Migrated",
        "MigrationStep",
    ),
    ".engine.rebuilding": ("rebuild",),
    ".engine.session": ("Session",),
    ".engine.shared": ("SharedMemory",),
    ".engine.shares": ("Share",),
    ".engine.stats": ("Progress", "Stats"),
    ".strategies.base": ("Strategy",),
    ".strategies.chain": ("Chain",),
    ".strategies.flush": ("FlushToLTM",),
    ".strategies.summarize": ("Summarize",),
    ".strategies.trim": ("Trim",),
    ".tokens.counter": ("TokenCounter",),
    ".aio.memory": ("AsyncAgentMemory",),
    ".aio.session": ("AsyncSession",),
    ".aio.streams": ("AsyncCompletionStream",),
    ".engine.conversing": ("CompletionStream",),
    ".ltm_blocks.files": (
        "FileMemory",
        "Files",
    ),
    ".ltm_blocks.notes": (
        "Note",
        "NoteMemory",
        "Notebook",
    ),
    ".ltm_blocks.skills": (
        "SkillMemory",
        "Skills",
    ),
    ".skills.skill": (
        "BrokenSkill",
        "Skill",
    ),
    ".snapshots.writing": ("Exported",),
    ".ltm_blocks.spatial": ("SpatialMemory",),
    ".ltm_blocks.spatial_places": ("Places",),
    ".spatial.observation": (
        "Observation",
        "Sighting",
    ),
    ".ltm_blocks.working": (
        "Scratchpad",
        "WorkingMemory",
    ),
    ".tools": (
        "Arguments",
        "Tool",
    ),
    ".turns": ("Turn",),
    ".vector_index": ("VectorIndex",),
    ".vector_items": (
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
