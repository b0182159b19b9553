"""Long-term blocks: memory beyond the window. A block's module loads when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_memory.core.lazy import lazily

if TYPE_CHECKING:
    from agent_memory.ltm_blocks.base import Block, Resources, record_id
    from agent_memory.ltm_blocks.extractive.block import ExtractiveMemory
    from agent_memory.ltm_blocks.files.block import FileMemory
    from agent_memory.ltm_blocks.llm_reranker import FactChooser
    from agent_memory.ltm_blocks.notes import NoteMemory
    from agent_memory.ltm_blocks.skills.block import SkillMemory
    from agent_memory.ltm_blocks.spatial.block import SpatialMemory
    from agent_memory.ltm_blocks.static import StaticMemory
    from agent_memory.ltm_blocks.vector import VectorMemory
    from agent_memory.ltm_blocks.working import WorkingMemory

__all__ = [
    "Block",
    "ExtractiveMemory",
    "FactChooser",
    "FileMemory",
    "NoteMemory",
    "Resources",
    "SkillMemory",
    "SpatialMemory",
    "StaticMemory",
    "VectorMemory",
    "WorkingMemory",
    "record_id",
]

if not TYPE_CHECKING:
    __getattr__ = lazily(
        __name__,
        {
            ".base": ("Block", "Resources", "record_id"),
            ".llm_reranker": ("FactChooser",),
            ".extractive.block": ("ExtractiveMemory",),
            ".files.block": ("FileMemory",),
            ".notes": ("NoteMemory",),
            ".skills.block": ("SkillMemory",),
            ".spatial.block": ("SpatialMemory",),
            ".static": ("StaticMemory",),
            ".vector": ("VectorMemory",),
            ".working": ("WorkingMemory",),
        },
    )
