"""Import conversations from exports and databases of other programs.

done = import_chats(memory, "chatgpt.zip", "chatgpt", user_id="ana")
print(done.new_messages, done.unread)
"""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from agent_memory.core.ids import check_id
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
    """Import conversations, each as a session with its times and branches.

    Imported messages are not stored again. An interrupted import can therefore be repeated, and a
    newer export adds what is new. Calls no model and absorbs nothing: `flush`, the next update or a
    worker does, such as the threads of a memory with `overflow_mode="background"`.

    Args:
        memory: The memory.
        path: A file, a zip as downloaded, or a folder.
        source: The format, as `agent-memory import --from` takes it, such as "chatgpt".
        user_id: The user of all data; None uses the source's users, which most sources lack.
        deleted: Whether to restore data that was deleted here: sessions, and the sessions and notes
            of users. Otherwise only a deleted user's messages from after the deletion are imported,
            and messages without a time are not.
        assign: Whether to give the user the sessions that were imported before without a user.
        progress: Called with the number of bytes read, of `size_of(path)` in all.

    Returns:
        The counts of found and stored data, and unreadable parts with place and reason. A damaged
        message or conversation does not stop the others.

    Raises:
        InvalidInput: The path does not exist, or has no data of that source; or `assign` is given
            without a user.
        StoreError: The store failed. Imported data stays, and another call continues.
    """
    if assign and user_id is None:
        raise InvalidInput("`assign` needs a user. Give one with user_id (--user ID).")
    return _run(Import(memory, source, user_id, deleted, assign), path, progress)


def preview(
    path: str | PathLike[str],
    source: str,
    *,
    user_id: str | None = None,
    progress: Callable[[int], object] | None = None,
) -> Imported:
    """Return what `import_chats` would find, and what it could not read. Stores nothing.

    Raises:
        InvalidInput: See `import_chats`.
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
