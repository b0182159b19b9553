"""Overflow strategies: they select the entries that leave the window, and summarise them.

A strategy's module loads when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_memory.core.lazy import lazily

if TYPE_CHECKING:
    from agent_memory.core.window import Cut
    from agent_memory.strategies.base import Chain, Departure, Limits, Strategy, Window
    from agent_memory.strategies.bounded import Bounded, ClearTools, FlushToLTM, Trim
    from agent_memory.strategies.summarize import Summarize

__all__ = [
    "Bounded",
    "Chain",
    "ClearTools",
    "Cut",
    "Departure",
    "FlushToLTM",
    "Limits",
    "Strategy",
    "Summarize",
    "Trim",
    "Window",
]

if not TYPE_CHECKING:
    __getattr__ = lazily(
        __name__,
        {
            ".base": ("Chain", "Departure", "Limits", "Strategy", "Window"),
            ".bounded": ("Bounded", "ClearTools", "FlushToLTM", "Trim"),
            ".summarize": ("Summarize",),
            "..core.window": ("Cut",),
        },
    )
