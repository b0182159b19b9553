"""Tools for tests: a scripted model server, steps to break at, and the contracts of stores.

They need nothing that agent-memory itself does not need, except the store contracts, which are
pytest classes, and `agent_memory.testing.histories`, which generates conversations with Hypothesis.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agent_memory.testing.facts import FactStoreContract
    from agent_memory.testing.fake_llm import FakeLLM
    from agent_memory.testing.sessions import SessionStoreContract
    from agent_memory.testing.vectors import VectorStoreContract
    from agent_memory.testing.watching import watched
    from agent_memory.testing.work import WorkStoreContract

__all__ = [
    "FactStoreContract",
    "FakeLLM",
    "SessionStoreContract",
    "VectorStoreContract",
    "WorkStoreContract",
    "watched",
]

_HOMES = {
    "FactStoreContract": "facts",
    "FakeLLM": "fake_llm",
    "SessionStoreContract": "sessions",
    "VectorStoreContract": "vectors",
    "WorkStoreContract": "work",
    "watched": "watching",
}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Load a public name at first use."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"agent_memory.testing.{_HOMES[name]}"), name)
