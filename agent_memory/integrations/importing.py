"""Imports conversations from the exports and databases of other programs.

done = import_chats(memory, "chatgpt.zip", "chatgpt", user_id="ana")
print(done.new_messages, done.unread)
"""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from agent_memory.core.limits import check_id
from agent_memory.errors import InvalidInput
from agent_memory.integrations.imports import reader
from agent_memory.integrations.imports.conversations import Imported
from agent_memory.integrations.imports.files import SourceFiles
from agent_memory.integrations.imports.writing import Import, ImportWriting

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
    assign: bool = False,
    progress: Callable[[int], object] | None = None,
) -> Imported:
    """Import conversations with their times. Each branch of a conversation becomes a session.

    A message that was imported before is not stored again. An interrupted import can therefore be
    repeated, and a newer export adds only new messages. An import calls no model. Blocks absorb the
    messages later: at a `flush`, at the next update, or on a worker's thread.

    Args:
        path: A file, a zip as downloaded, or a folder.
        source: The format, a value of `agent-memory import --from`, such as "chatgpt".
        user_id: The user of all data. None takes the users that the source names. Most sources name
            no users.
        deleted: Whether to restore sessions that were deleted from the memory, and the sessions and
            notes of deleted users. If not, deleted sessions stay deleted, and a deleted user's data
            is only imported if it is dated after the deletion.
        assign: Whether to assign earlier imported sessions without a user to `user_id`.
        progress: Called with the number of bytes read since the last call. The numbers add up to
            `size_of(path)`.

    Returns:
        The counts of found and stored data, and the list of unreadable data with places and
        reasons. A damaged message or conversation does not stop the import.

    Raises:
        InvalidInput: The path does not exist or has no data of that source, or `assign` is set
            without `user_id`.
        StoreError: The store failed. Imported data stays. Repeat the call to continue.
    """
    if assign and user_id is None:
        raise InvalidInput("`assign` needs a user. Name the user with user_id (--user ID).")
    return _run(Import(memory, source, user_id, deleted, assign), path, progress)


def preview(
    path: str | PathLike[str],
    source: str,
    *,
    user_id: str | None = None,
    progress: Callable[[int], object] | None = None,
) -> Imported:
    """Return the data that `import_chats` would find, and the unreadable data. Store nothing.

    Raises:
        InvalidInput: The path does not exist, or has no data of that source.
    """
    return _run(Import(None, source, user_id), path, progress)


def size_of(path: str | PathLike[str]) -> int:
    """Return the size in bytes of a file, or of all files in a folder."""
    where = Path(path)
    files = where.rglob("*") if where.is_dir() else [where]
    return sum(file.lstat().st_size for file in files if not file.is_dir())


def _run(
    terms: Import, path: str | PathLike[str], progress: Callable[[int], object] | None
) -> Imported:
    if terms.user_id is not None:
        check_id("user_id", terms.user_id)
    read = reader(terms.source)
    return ImportWriting(terms).run(read(SourceFiles(Path(path), progress)))
