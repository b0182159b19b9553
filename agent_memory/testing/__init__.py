"""Tools for your tests.

`FakeLLM` is a scripted model server. `check_context` checks a context against a provider's rules.
`watched` injects faults.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_memory.core.lazy import lazily

if TYPE_CHECKING:
    from agent_memory.testing.contexts import check_context
    from agent_memory.testing.fake_llm import FakeLLM
    from agent_memory.testing.watching import watched

__all__ = ["FakeLLM", "check_context", "watched"]

if not TYPE_CHECKING:
    __getattr__ = lazily(
        __name__,
        {
            ".contexts": ("check_context",),
            ".fake_llm": ("FakeLLM",),
            ".watching": ("watched",),
        },
    )
