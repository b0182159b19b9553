"""Strands' tests of session managers."""

from typing import Any

from benchmarks.suites.suite import Suite, memory

_FILES = "it looks at the files of a FileSessionManager"
_LATER = "it tests another release than the installed one"

SUITE = Suite(
    "strands",
    "strands-agents",
    "sdk-python",
    (
        "tests/strands/session/test_file_session_manager.py",
        "tests/strands/session/test_repository_session_manager.py",
    ),
    needs=("moto[s3]", "aiohttp", "boto3"),
    excluded={
        "::test_create_session": _FILES,
        "::test_delete_session": _FILES,
        "::test_create_agent": _FILES,
        "::test_create_message": _FILES,
        "::test_corrupted_json_file": _FILES,
        "::test_message_durable_id_persists": _FILES,
        "::test__get_*": _FILES,
        "::test_create_multi_agent": _FILES,
        "::test_create_session_multi_agent_directory_structure": _FILES,
        "*bidi*": _LATER,
    },
)


def pytest_configure() -> None:
    """Put our classes in place."""
    import strands.session.file_session_manager as files
    import tests.fixtures.mock_session_repository as mocked

    from agent_memory.integrations.strands import (
        AgentMemorySessionManager,
        AgentMemorySessionRepository,
    )

    opened: dict[Any, Any] = {}

    class Manager(AgentMemorySessionManager):
        def __init__(self, session_id: str, storage_dir: Any = None, **more: Any) -> None:
            # as with their manager, the same folder has the same data
            super().__init__(session_id, opened.setdefault(storage_dir, memory()), **more)

    class Repository(AgentMemorySessionRepository):
        def __init__(self) -> None:
            super().__init__(memory())

    files.FileSessionManager = Manager
    mocked.MockedSessionRepository = Repository
