"""Long-term blocks: consumers of the log that can be asked. Each loads when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_memory.lazy import lazily

if TYPE_CHECKING:
    from agent_memory.ltm_blocks.base import Block, Resources, record_id
    from agent_memory.ltm_blocks.extractive import ExtractiveMemory
    from agent_memory.ltm_blocks.static import StaticMemory
    from agent_memory.ltm_blocks.vector import VectorMemory

__all__ = [
    "Block",
    "ExtractiveMemory",
    "Resources",
    "StaticMemory",
    "VectorMemory",
    "record_id",
]

if not TYPE_CHECKING:
    __getattr__ = lazily(
        __name__,
        {
            ".base": ("Block", "Resources", "record_id"),
            ".extractive": ("ExtractiveMemory",),
            ".static": ("StaticMemory",),
            ".vector": ("VectorMemory",),
        },
    )
