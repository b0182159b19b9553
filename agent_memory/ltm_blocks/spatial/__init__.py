"""`SpatialMemory`: observations at places, with a confidence that fades."""

from agent_memory.ltm_blocks.spatial.block import SpatialMemory
from agent_memory.ltm_blocks.spatial.handle import Observation, SpatialHandle, SpatialMatch

__all__ = ["Observation", "SpatialHandle", "SpatialMatch", "SpatialMemory"]
