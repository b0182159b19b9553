"""Tools for your tests.

`FakeLLM` is a scripted model server. `check_context` checks a context against a provider's rules.
`watched` injects faults. The contracts are tests for your own store, and need pytest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_memory.core.lazy import lazily

if TYPE_CHECKING:
    from agent_memory.testing.contexts import check_context as check_context
    from agent_memory.testing.fake_llm import FakeLLM as FakeLLM
    from agent_memory.testing.records import RecordStoreContract as RecordStoreContract
    from agent_memory.testing.sessions import SessionStoreContract as SessionStoreContract
    from agent_memory.testing.vectors import VectorStoreContract as VectorStoreContract
    from agent_memory.testing.watching import watched as watched
    from agent_memory.testing.work import StoreContract as StoreContract
    from agent_memory.testing.work import WorkStoreContract as WorkStoreContract

if not TYPE_CHECKING:
    __getattr__, __all__ = lazily(
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
