"""Overflow strategies: they select the entries that leave the window, and summarise them.

Each strategy is loaded at its first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_memory.core.lazy import lazily

if TYPE_CHECKING:
    from agent_memory.core.window import Cut
    from agent_memory.strategies.base import Departure, Limits, Strategy, Window
    from agent_memory.strategies.bounded import Bounded
    from agent_memory.strategies.chain import Chain
    from agent_memory.strategies.clear_tools import ClearTools
    from agent_memory.strategies.flush import FlushToLTM
    from agent_memory.strategies.summarize import Summarize
    from agent_memory.strategies.trim import Trim

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
            ".base": ("Departure", "Limits", "Strategy", "Window"),
            ".bounded": ("Bounded",),
            ".chain": ("Chain",),
            ".clear_tools": ("ClearTools",),
            ".flush": ("FlushToLTM",),
            ".summarize": ("Summarize",),
            ".trim": ("Trim",),
            "..core.window": ("Cut",),
        },
    )
