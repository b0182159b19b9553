"""ADK's tests of in-memory services, and of runners with them."""

from typing import Any
from uuid import uuid4

from benchmarks.suites.suite import Suite, memory

_OTHERS = "it tests another service than the one that ours replaces"
_INSIDE = "it looks into the in-memory service"

SUITE = Suite(
    "google_adk",
    "google-adk",
    "adk-python",
    (
        "tests/unittests/sessions/test_session_service.py",
        "tests/unittests/memory/test_in_memory_memory_service.py",
        "tests/unittests/runners",
        "tests/unittests/test_runners.py",
    ),
    needs=("a2a-sdk",),
    excluded={
        "*DATABASE*": _OTHERS,
        "*SQLITE*": _OTHERS,
        "::test_database_*": _OTHERS,
        "::test_sqlite_*": _OTHERS,
        "*[[]*database]": _OTHERS,
        "*[[]sqlite]": _OTHERS,
        "*[[]redis]": _OTHERS,
        "::test_append_event_when_session_is_same_ref_as_storage_session": _INSIDE,
        "::test_add_session_to_memory": _INSIDE,
        "::test_add_events_to_memory_*": _INSIDE,
        "::test_add_session_with_no_events_to_memory": _INSIDE,
    },
)


def pytest_configure() -> None:
    """Put our services in place."""
    import google.adk.memory.in_memory_memory_service as memories
    import google.adk.runners as runners
    import google.adk.sessions.in_memory_session_service as sessions

    from agent_memory.integrations.google_adk import (
        AgentMemoryMemoryService,
        AgentMemorySessionService,
    )

    class Sessions(AgentMemorySessionService):
        def __init__(self) -> None:
            super().__init__(memory())

        # tests of runners call these methods, which only the in-memory service has

        def create_session_sync(self, *, session_id: str | None = None, **whose: Any) -> Any:
            name = session_id or str(uuid4())
            return self._create(whose["app_name"], whose["user_id"], whose.get("state") or {}, name)

        def get_session_sync(self, *, app_name: str, user_id: str, session_id: str) -> Any:
            return self._get(app_name, user_id, session_id, None)

    class Memories(AgentMemoryMemoryService):
        def __init__(self) -> None:
            super().__init__(memory())

    for module in (sessions, runners):
        module.InMemorySessionService = Sessions  # type: ignore[attr-defined]
    for module in (memories, runners):
        module.InMemoryMemoryService = Memories  # type: ignore[attr-defined]
