"""`ExtractiveMemory`: facts that a language model extracts from messages, each with its history."""

from agent_memory.ltm_blocks.extractive.block import ExtractiveMemory
from agent_memory.ltm_blocks.extractive.history.fact import (
    Evidence,
    Fact,
    ImportanceScorer,
    Stale,
    StalenessDetector,
)
from agent_memory.ltm_blocks.extractive.history.history import Change

__all__ = [
    "Change",
    "Evidence",
    "ExtractiveMemory",
    "Fact",
    "ImportanceScorer",
    "Stale",
    "StalenessDetector",
]
