"""Bringing along what was said elsewhere: exports and databases of other programs.

done = import_chats(memory, "chatgpt.zip", "chatgpt", user_id="ana")
print(done.new_messages, done.unread)
"""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from agent_memory.core.ids import check_id
from agent_memory.integrations.imports.files import SourceFiles
from agent_memory.integrations.imports.imported import Imported
from agent_memory.integrations.imports.sources import reader
from agent_memory.integrations.imports.writing import ImportWriting

if TYPE_CHECKING:
    from agent_memory.engine.memory import AgentMemory

__all__ = ["Imported", "import_chats", "preview", "size_of"]


def import_chats(
    memory: AgentMemory,
    path: str | PathLike[str],
    source: str,
    *,
    user_id: str | None = None,
    deleted: bool = False,
    progress: Callable[[int], object] | None = None,
) -> Imported:
    """Bring conversations along, each as a session, with their times and branches.

    What was imported before is not stored again, so an import that was interrupted goes on, and a
    newer export adds what is new. It asks no model and absorbs nothing: that is left to `flush`,
    the next update, or a worker, such as the threads of a memory with `overflow_mode="background"`.

    Args:
        memory: Where to.
        path: A file, a zip as it was downloaded, or a folder.
        source: Where it comes from, as `agent-memory import --from` takes it, such as "chatgpt".
        user_id: Whose all of it is; None leaves that to the source, which mostly does not say.
        deleted: Bring sessions back too that were deleted here.
        progress: Told how many bytes were read, of `size_of(path)`.

    Returns:
        What was found and stored, and what could not be read, with where it stands and why. One bad
        message or conversation stops no other.

    Raises:
        InvalidInput: Nothing is of that name, or none of it is of that source.
        StoreError: The store failed; what was imported stays, and another call goes on.
    """
    return _run(memory, path, source, user_id, deleted, progress)


def preview(
    path: str | PathLike[str],
    source: str,
    *,
    user_id: str | None = None,
    progress: Callable[[int], object] | None = None,
) -> Imported:
    """What `import_chats` would find, and what it could not read. Nothing is stored.

    Raises:
        InvalidInput: As for `import_chats`.
    """
    return _run(None, path, source, user_id, False, progress)


def size_of(path: str | PathLike[str]) -> int:
    """Bytes of a file, or of all files in a folder."""
    where = Path(path)
    files = where.rglob("*") if where.is_dir() else [where]
    return sum(file.lstat().st_size for file in files if not file.is_dir())


def _run(
    memory: AgentMemory | None,
    path: str | PathLike[str],
    source: str,
    user_id: str | None,
    deleted: bool,
    progress: Callable[[int], object] | None,
) -> Imported:
    if user_id is not None:
        check_id("user_id", user_id)
    read = reader(source)
    writing = ImportWriting(memory, source, user_id, deleted)
    return writing.run(read(SourceFiles(Path(path), progress)))
