"""LlamaIndex's tests of a chat store."""

from __future__ import annotations

from benchmarks.suites.suite import Suite, memory

SUITE = Suite(
    "llama_index",
    "llama-index-core",
    "llama_index",
    ("tests/storage/chat_store/test_simple_chat_store.py",),
    root="llama-index-core",
    excluded={
        "::test_persist_non_ascii_unescaped": "it writes a SimpleChatStore into a JSON file",
    },
)


def pytest_configure() -> None:
    """Put our chat store in place."""
    import llama_index.core.storage.chat_store as stores

    from agent_memory.integrations.llama_index import AgentMemoryChatStore

    stores.SimpleChatStore = lambda: AgentMemoryChatStore(memory())
