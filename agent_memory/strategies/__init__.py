"""Overflow strategies: what leaves the window, and what stands in its place.

Each loads when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_memory.core.lazy import lazily

if TYPE_CHECKING:
    from agent_memory.core.window import Cut
    from agent_memory.strategies.base import Departure, Limits, Strategy, Window
    from agent_memory.strategies.bounded import Bounded
    from agent_memory.strategies.chain import Chain
    from agent_memory.strategies.flush import FlushToLTM
    from agent_memory.strategies.summarize import Summarize
    from agent_memory.strategies.trim import Trim

__all__ = [
    "Bounded",
    "Chain",
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
            ".flush": ("FlushToLTM",),
            ".summarize": ("Summarize",),
            ".trim": ("Trim",),
            "..core.window": ("Cut",),
        },
    )
