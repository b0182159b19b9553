"""Tests of Anthropic's SDK for its memory tool over files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.suites.suite import Suite, memory

if TYPE_CHECKING:
    from agent_memory import AgentMemory

_DOTS = "every dot segment in a path is refused, wherever it leads: see docs/files.md"
_DISK = "it checks permissions or links of a folder on disk, and there is no folder"

SUITE = Suite(
    "anthropic",
    "anthropic",
    "anthropic-sdk-python",
    ("tests/lib/tools/memory_tools/test_filesystem.py",),
    needs=("respx", "dirty-equals", "inline-snapshot", "time-machine", "http-snapshot", "aiohttp"),
    excluded={
        "::test_mkdir_parents_not_world_writable_under_permissive_umask": _DISK,
        "*symlink*": _DISK,
        "*_preserves_crlf_line_endings": "it writes the file into a folder on disk itself",
        "*_not_allow_*_memories_directory[[]/memories/.]": _DOTS,
        "*_not_allow_*_memories_directory[[]/memories/sub/..]": _DOTS,
    },
)


def pytest_configure() -> None:
    """Put our tools in place."""
    import anthropic.lib.tools._beta_builtin_memory_tool as builtin

    from agent_memory import FileMemory
    from agent_memory.integrations.anthropic import AsyncMemoryTool, MemoryTool

    class Tool(MemoryTool):
        def __init__(self, base_path: str) -> None:
            self._place, self._kept = (
                Path(base_path),
                memory(FileMemory(max_chars=10**7, max_total_chars=10**7)),
            )
            super().__init__(self._kept, user_id="u")

        @property
        def base_path(self) -> Path:
            return _written(self._kept, self._place)

        @property
        def memory_root(self) -> Path:
            return _root(self.base_path)

    class AwaitedRoot:
        """A folder with the coroutine `is_dir`, which tests of the asynchronous tool await."""

        def __init__(self, root: Path) -> None:
            self._root = root

        def __str__(self) -> str:
            return str(self._root)

        async def is_dir(self) -> bool:
            return self._root.is_dir()

    class AsyncTool(AsyncMemoryTool):
        def __init__(self, base_path: str) -> None:
            self._place, self._kept = (
                Path(base_path),
                memory(FileMemory(max_chars=10**7, max_total_chars=10**7)),
            )
            super().__init__(self._kept, user_id="u")

        @property
        def base_path(self) -> Path:
            return _written(self._kept, self._place)

        @property
        def memory_root(self) -> AwaitedRoot:
            return AwaitedRoot(_root(self.base_path))

    builtin.BetaLocalFilesystemMemoryTool = Tool
    builtin.BetaAsyncLocalFilesystemMemoryTool = AsyncTool


def _root(place: Path) -> Path:
    (root := place / "memories").mkdir(exist_ok=True)
    return root


def _written(kept: AgentMemory, place: Path) -> Path:
    """Copy the memory's files into a folder, for tests that read the tool's folder."""
    files = kept.user("u").files()
    for path in files.paths():
        copy = place / path.lstrip("/")
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(files.read(path))
    return place
