"""Tools for your tests.

`FakeLLM` is a scripted model server. `check_context` checks a context against a provider's rules.
`watched` injects faults. The contracts are tests for your own store, and need pytest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_memory.core.lazy import lazily

if TYPE_CHECKING:
    from agent_memory.testing.contexts import check_context
    from agent_memory.testing.fake_llm import FakeLLM
    from agent_memory.testing.records import RecordStoreContract
    from agent_memory.testing.sessions import SessionStoreContract
    from agent_memory.testing.vectors import VectorStoreContract
    from agent_memory.testing.watching import watched
    from agent_memory.testing.work import StoreContract, WorkStoreContract

__all__ = [
    "FakeLLM",
    "RecordStoreContract",
    "SessionStoreContract",
    "StoreContract",
    "VectorStoreContract",
    "WorkStoreContract",
    "check_context",
    "watched",
]

if not TYPE_CHECKING:
    __getattr__ = lazily(
        __name__,
        {
            ".contexts": ("check_context",),
            ".records": ("RecordStoreContract",),
            ".fake_llm": ("FakeLLM",),
            ".sessions": ("SessionStoreContract",),
            ".vectors": ("VectorStoreContract",),
            ".watching": ("watched",),
            ".work": ("StoreContract", "WorkStoreContract"),
        },
    )
