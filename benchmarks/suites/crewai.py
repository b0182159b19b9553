"""CrewAI's tests of memories and of both of their storages."""

from typing import Any

from benchmarks.suites.suite import Suite, memory

_SHARDS = "it looks at the two folders of a QdrantEdgeStorage"

SUITE = Suite(
    "crewai",
    "crewai",
    "crewAI",
    ("tests/memory",),
    root="lib/crewai",
    needs=("pytest-recording", "qdrant-edge-py"),
    environment={
        "CREWAI_DISABLE_TELEMETRY": "true",
        "CREWAI_TESTING": "true",
        "CREWAI_TRACING_ENABLED": "false",
        "OPENAI_API_KEY": "none",
        "OTEL_SDK_DISABLED": "true",
    },
    excluded={
        "::test_percent_underscore_and_backslash_in_scope_names_match_literally": (
            "it finds a scope by a prefix of its name; ours needs whole names"
        ),
        "::test_flush_to_central": _SHARDS,
        "::test_dual_shard_search": _SHARDS,
        "::test_orphaned_shard_cleanup": _SHARDS,
    },
)


def pytest_configure() -> None:
    """Put our storage in place of LanceDB's and Qdrant's."""
    import crewai.memory.storage.lancedb_storage as lancedb
    import crewai.memory.storage.qdrant_edge_storage as qdrant

    from agent_memory.integrations.crewai import AgentMemoryStorage

    opened: dict[str, Any] = {}

    class Storage(AgentMemoryStorage):
        def __init__(self, path: Any = None, **more: Any) -> None:
            # as with their storages, the same folder has the same data
            super().__init__(opened.setdefault(str(path), memory()))

        def close(self) -> None:
            """Do nothing: other storages use the memory, too."""

    lancedb.LanceDBStorage = Storage
    qdrant.QdrantEdgeStorage = Storage
