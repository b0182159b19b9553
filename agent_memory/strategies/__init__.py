"""Overflow strategies: what leaves the window, and what stands in its place."""

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
