"""Tools for tests: a scripted model server, steps to break at, and the contracts of stores.

They need nothing that agent-memory itself does not need, except the store contracts, which are
pytest classes, and `agent_memory.testing.histories`, which generates conversations with Hypothesis.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_memory.core.lazy import lazily

if TYPE_CHECKING:
    from agent_memory.testing.fake_llm import FakeLLM
    from agent_memory.testing.records import RecordStoreContract
    from agent_memory.testing.sessions import SessionStoreContract
    from agent_memory.testing.vectors import VectorStoreContract
    from agent_memory.testing.watching import watched
    from agent_memory.testing.work import WorkStoreContract

__all__ = [
    "FakeLLM",
    "RecordStoreContract",
    "SessionStoreContract",
    "VectorStoreContract",
    "WorkStoreContract",
    "watched",
]

if not TYPE_CHECKING:
    __getattr__ = lazily(
        __name__,
        {
            ".records": ("RecordStoreContract",),
            ".fake_llm": ("FakeLLM",),
            ".sessions": ("SessionStoreContract",),
            ".vectors": ("VectorStoreContract",),
            ".watching": ("watched",),
            ".work": ("WorkStoreContract",),
        },
    )
