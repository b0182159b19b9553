"""`ExtractiveMemory`: facts out of what was said, each with its history."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_memory.core.lazy import lazily

if TYPE_CHECKING:
    from agent_memory.ltm_blocks.extractive.block import ExtractiveMemory
    from agent_memory.ltm_blocks.extractive.history.auditing import Change
    from agent_memory.ltm_blocks.extractive.history.fact import Evidence, Fact
    from agent_memory.ltm_blocks.extractive.history.scoring import ImportanceScorer
    from agent_memory.ltm_blocks.extractive.history.staleness import Stale, StalenessDetector

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
            ".history.auditing": ("Change",),
            ".history.fact": (
                "Evidence",
                "Fact",
            ),
            ".history.scoring": ("ImportanceScorer",),
            ".history.staleness": (
                "Stale",
                "StalenessDetector",
            ),
        },
    )
