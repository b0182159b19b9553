"""LlamaIndex's tests of a chat store, of its memory, and of older memories over a chat store."""

from typing import Any

from benchmarks.suites.suite import Suite, memory

_FILE = "it converts a SimpleChatStore to JSON and back; ours is in a database"
_COUNTING = "it asks how LlamaIndex's own Memory counts tokens"
_STATUS = "it names the status of messages, which only LlamaIndex's own Memory has"
SUITE = Suite(
    "llama_index",
    "llama-index-core",
    "llama_index",
    (
        "tests/storage/chat_store/test_simple_chat_store.py",
        "tests/memory/test_memory_base.py",
        "tests/memory/test_chat_memory_buffer.py",
        "tests/memory/test_chat_summary_memory_buffer.py",
    ),
    root="llama-index-core",
    excluded={
        "::test_persist_non_ascii_unescaped": _FILE,
        "::test_string_save_load": _FILE,
        "::test_dict_save_load": _FILE,
        "test_memory_base.py::test_initialization": _COUNTING,
        "::test_estimate_token_count_*": _COUNTING,
        "test_memory_base.py::test_aget_all": _STATUS,
        "test_memory_base.py::test_areset": _STATUS,
    },
)


def pytest_configure() -> None:
    """Put our chat store and our memory in place."""
    import llama_index.core.memory.chat_memory_buffer as buffers
    import llama_index.core.memory.chat_summary_memory_buffer as summaries
    import llama_index.core.memory.memory as memories
    import llama_index.core.storage.chat_store as stores

    from agent_memory.integrations.llama_index import AgentMemoryChatStore, AgentMemoryMemory

    class Store(AgentMemoryChatStore):
        def __init__(self, store: Any = None, **more: Any) -> None:
            super().__init__(memory())
            for key, messages in (store or {}).items():
                self.set_messages(key, messages)

    def kept(token_limit: int, session_id: str, **more: Any) -> AgentMemoryMemory:
        return AgentMemoryMemory.from_defaults(memory(max_tokens=token_limit), session_id)

    for module in (stores, buffers, summaries):
        module.SimpleChatStore = Store  # type: ignore[attr-defined]
    memories.Memory = kept
