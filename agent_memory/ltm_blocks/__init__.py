"""Long-term blocks: memory beyond the window. A block's module loads when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_memory.core.lazy import lazily
from agent_memory.core.plugins import BUILT_IN

if TYPE_CHECKING:
    from agent_memory.ltm_blocks.base import Block as Block
    from agent_memory.ltm_blocks.base import Resources as Resources
    from agent_memory.ltm_blocks.base import record_id as record_id
    from agent_memory.ltm_blocks.extractive.block import ExtractiveMemory as ExtractiveMemory
    from agent_memory.ltm_blocks.files.block import FileMemory as FileMemory
    from agent_memory.ltm_blocks.llm_reranker import FactChooser as FactChooser
    from agent_memory.ltm_blocks.notes import NoteMemory as NoteMemory
    from agent_memory.ltm_blocks.skills.block import SkillMemory as SkillMemory
    from agent_memory.ltm_blocks.spatial.block import SpatialMemory as SpatialMemory
    from agent_memory.ltm_blocks.static import StaticMemory as StaticMemory
    from agent_memory.ltm_blocks.vector import VectorMemory as VectorMemory
    from agent_memory.ltm_blocks.working import WorkingMemory as WorkingMemory

if not TYPE_CHECKING:
    __getattr__, __all__ = lazily(
        __name__,
        {".base": ("Block", "Resources", "record_id"), ".llm_reranker": ("FactChooser",)},
        BUILT_IN["agent_memory.ltm_blocks"].values(),
    )
