"""`ExtractiveMemory`: facts extracted from messages, each with its history."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_memory.core.lazy import lazily

if TYPE_CHECKING:
    from agent_memory.ltm_blocks.extractive.block import ExtractiveMemory
    from agent_memory.ltm_blocks.extractive.history.fact import Evidence, Fact, ImportanceScorer
    from agent_memory.ltm_blocks.extractive.history.history import Change
    from agent_memory.ltm_blocks.extractive.history.likeness import Stale, StalenessDetector

__all__ = [
    "Change",
    "Evidence",
    "ExtractiveMemory",
    "Fact",
    "ImportanceScorer",
    "Stale",
    "StalenessDetector",
]

if not TYPE_CHECKING:
    __getattr__ = lazily(
        __name__,
        {
            ".block": ("ExtractiveMemory",),
            ".history.history": ("Change",),
            ".history.fact": ("Evidence", "Fact", "ImportanceScorer"),
            ".history.likeness": ("Stale", "StalenessDetector"),
        },
    )
