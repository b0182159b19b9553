"""The Agents SDK's tests of sessions, and of its runner with a session."""

from pathlib import Path
from typing import Any

from benchmarks.suites.suite import Suite, memory

_SQLITE = "it looks at the tables, connections or locks of SQLiteSession"
_PRIVATE = (
    "it compacts a part of a session by a private method of SQLiteSession; the SDK compacts other "
    "sessions only as a whole"
)

SUITE = Suite(
    "openai_agents",
    "openai-agents",
    "openai-agents-python",
    (
        "tests/memory",
        "tests/test_agent_runner.py",
        "tests/test_agent_runner_streamed.py",
        "tests/test_hitl_session_scenario.py",
    ),
    needs=("inline-snapshot", "websockets"),
    excluded={
        "::test_sqlite_session_close*": _SQLITE,
        "::test_sqlite_session_failed_*": _SQLITE,
        "::test_sqlite_session_file_lock_*": _SQLITE,
        "::test_sqlite_session_*corrupt*": _SQLITE,
        "::test_sqlite_session_post_commit_*": _SQLITE,
        "::test_sqlite_session_rollback_*": _SQLITE,
        "::test_sqlite_session_*_connections_*": _SQLITE,
        "::test_settled_pop_failure_*": _SQLITE,
        "::test_settled_clear_failure_*": _SQLITE,
        "::test_backend_read_limit_cannot_hide_retained_history_*": _PRIVATE,
        "::test_automatic_compaction_does_not_reload_unbounded_hidden_history*": _PRIVATE,
        "::test_expired_read_overhead_does_not_authorize_hidden_history*": _PRIVATE,
        "::test_automatic_compaction_rollback_budget[[]True]": _PRIVATE,
    },
)


def pytest_configure() -> None:
    """Put our session in place. Sessions with the same file share a memory."""
    import agents
    import agents.memory
    import agents.memory.sqlite_session as sqlite

    from agent_memory import AgentMemory
    from agent_memory.integrations.openai_agents import AgentMemorySession

    opened: dict[str, AgentMemory] = {}

    class Session(AgentMemorySession):
        def __init__(
            self, session_id: str, db_path: str | Path = ":memory:", *more: Any, **options: Any
        ) -> None:
            self.db_path = db_path
            path = str(db_path)
            if path == ":memory:":
                one = memory()
            else:
                url = f"sqlite:///{path}.memory"
                one = opened.get(path) or opened.setdefault(path, AgentMemory(store=url, blocks=[]))
            super().__init__(one, session_id, session_settings=options.get("session_settings"))

        def close(self) -> None:
            """Do nothing: other sessions use the memory, too."""

    for module in (agents, agents.memory, sqlite):
        module.SQLiteSession = Session  # type: ignore[attr-defined]
