"""Long-term blocks: consumers of the log that can be asked. Each loads when it is first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

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

_HOME_OF = {
    "Block": "base",
    "ExtractiveMemory": "extractive",
    "Resources": "base",
    "StaticMemory": "static",
    "VectorMemory": "vector",
    "record_id": "base",
}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name not in _HOME_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
