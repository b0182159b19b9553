"""Tests of Microsoft's Agent Framework for history providers, and for agents with a provider."""

from typing import Any

from benchmarks.suites.suite import Suite, memory

_STATE = "it looks into the session's state, in which the in-memory provider keeps messages"

SUITE = Suite(
    "agent_framework",
    "agent-framework-core",
    "agent-framework",
    (
        "tests/core/test_sessions.py",
        "tests/core/test_compaction.py",
        "tests/core/test_harness_memory.py",
        "tests/core/test_agent_hooks.py",
        "tests/core/test_agents.py",
    ),
    root="python/packages/core",
    needs=("opentelemetry-sdk",),
    excluded={
        "TestInMemoryHistoryProvider::*": _STATE,
        "::test_in_memory_history_provider_*": _STATE,
        "::test_chat_client_agent_prepare_session_and_messages": _STATE,
        "*injects_inmemory*": "it checks the default provider of an agent",
        "TestFileHistoryProvider::*": "it looks at the files of FileHistoryProvider",
    },
)


def pytest_configure() -> None:
    """Put our provider in place."""
    import agent_framework
    import agent_framework._sessions as sessions

    from agent_memory.integrations.agent_framework import AgentMemoryHistoryProvider

    class Provider(AgentMemoryHistoryProvider):
        DEFAULT_SOURCE_ID = "in_memory"

        def __init__(self, source_id: str = "in_memory", **options: Any) -> None:
            super().__init__(memory(), source_id=source_id, **options)

    for module in (agent_framework, sessions):
        module.InMemoryHistoryProvider = Provider  # type: ignore[attr-defined]
