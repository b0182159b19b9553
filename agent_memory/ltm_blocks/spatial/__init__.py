"""`SpatialMemory`: observations at places, with a confidence that fades."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_memory.core.lazy import lazily

if TYPE_CHECKING:
    from agent_memory.ltm_blocks.spatial.block import SpatialMemory
    from agent_memory.ltm_blocks.spatial.handle import SpatialHandle
    from agent_memory.ltm_blocks.spatial.observation import Observation, SpatialMatch

__all__ = ["Observation", "SpatialHandle", "SpatialMatch", "SpatialMemory"]

if not TYPE_CHECKING:
    __getattr__ = lazily(
        __name__,
        {
            ".block": ("SpatialMemory",),
            ".observation": (
                "Observation",
                "SpatialMatch",
            ),
            ".handle": ("SpatialHandle",),
        },
    )
