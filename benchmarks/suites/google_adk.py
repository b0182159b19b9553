"""ADK's tests of in-memory services."""

from __future__ import annotations

from benchmarks.suites.suite import Suite, memory

_OTHERS = "it is of another service than the one in whose place ours stands"
_INSIDE = "it looks into the in-memory service"

SUITE = Suite(
    "google_adk",
    "google-adk",
    "adk-python",
    (
        "tests/unittests/sessions/test_session_service.py",
        "tests/unittests/memory/test_in_memory_memory_service.py",
    ),
    needs=("a2a-sdk",),
    excluded={
        "*DATABASE*": _OTHERS,
        "*SQLITE*": _OTHERS,
        "::test_database_*": _OTHERS,
        "::test_sqlite_*": _OTHERS,
        "::test_add_session_to_memory": _INSIDE,
        "::test_add_events_to_memory_*": _INSIDE,
        "::test_add_session_with_no_events_to_memory": _INSIDE,
    },
)


def pytest_configure() -> None:
    """Put our services in place."""
    import google.adk.memory.in_memory_memory_service as memories
    import google.adk.sessions.in_memory_session_service as sessions

    from agent_memory.integrations.google_adk import (
        AgentMemoryMemoryService,
        AgentMemorySessionService,
    )

    class Sessions(AgentMemorySessionService):
        def __init__(self) -> None:
            super().__init__(memory())

    class Memories(AgentMemoryMemoryService):
        def __init__(self) -> None:
            super().__init__(memory())

    sessions.InMemorySessionService = Sessions
    memories.InMemoryMemoryService = Memories
