"""Long-term blocks: consumers of the log that can be asked."""

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
