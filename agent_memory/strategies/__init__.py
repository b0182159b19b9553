"""Overflow strategies: they select the entries that leave the window, and summarise them.

A strategy's module loads when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_memory.core.lazy import lazily
from agent_memory.core.plugins import BUILT_IN

if TYPE_CHECKING:
    from agent_memory.core.window import Cut as Cut
    from agent_memory.strategies.base import Chain as Chain
    from agent_memory.strategies.base import Departure as Departure
    from agent_memory.strategies.base import Limits as Limits
    from agent_memory.strategies.base import Strategy as Strategy
    from agent_memory.strategies.base import Window as Window
    from agent_memory.strategies.bounded import Bounded as Bounded
    from agent_memory.strategies.bounded import ClearTools as ClearTools
    from agent_memory.strategies.bounded import FlushToLTM as FlushToLTM
    from agent_memory.strategies.bounded import Trim as Trim
    from agent_memory.strategies.summarize import Summarize as Summarize

if not TYPE_CHECKING:
    __getattr__, __all__ = lazily(
        __name__,
        {
            ".base": ("Departure", "Limits", "Strategy", "Window"),
            ".bounded": ("Bounded",),
            "..core.window": ("Cut",),
        },
        BUILT_IN["agent_memory.strategies"].values(),
    )
