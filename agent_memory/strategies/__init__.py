"""Overflow strategies: what leaves the window, and what stands in its place.

Each loads when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent_memory.strategies.base import Departure, Strategy, Window
    from agent_memory.strategies.chain import Chain
    from agent_memory.strategies.flush import FlushToLTM
    from agent_memory.strategies.summarize import Summarize
    from agent_memory.strategies.trim import Trim
    from agent_memory.window import Cut

__all__ = [
    "Chain",
    "Cut",
    "Departure",
    "FlushToLTM",
    "Strategy",
    "Summarize",
    "Trim",
    "Window",
]

_HOME_OF = {
    "Chain": "agent_memory.strategies.chain",
    "Cut": "agent_memory.window",
    "Departure": "agent_memory.strategies.base",
    "FlushToLTM": "agent_memory.strategies.flush",
    "Strategy": "agent_memory.strategies.base",
    "Summarize": "agent_memory.strategies.summarize",
    "Trim": "agent_memory.strategies.trim",
    "Window": "agent_memory.strategies.base",
}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name not in _HOME_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_HOME_OF[name]), name)
