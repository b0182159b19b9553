"""`FolderStore`: a folder of plain files, one of JSON Lines for each session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from agent_memory.core.records import Record
from agent_memory.stores.base import Durability
from agent_memory.stores.folder.kernel import FolderKernel
from agent_memory.stores.folder.lines import file_name
from agent_memory.stores.kernel.vectors import KernelStore

if TYPE_CHECKING:
    from agent_memory.retrieval.features import Features

_URL = "folder:///"


class FolderStore(KernelStore):
    """Keeps all in plain files that people read, search, version and carry about.

        notes/
            sessions/monday-0a1b2c3d4e.jsonl    the session, then its messages, one a line
            records/extractive-....jsonl        what blocks keep, one a line
            vectors/vector-....jsonl            the same with what it is found by
            .state.json                         leases and what is due: of this machine

    A file is put in its place whole, under a lock that all processes of a machine share, so that a
    crash leaves the one before or the one after. Each call looks at what has changed: another
    process may write, and so may people while no call is under way. Each write writes its file
    anew: it is slow, and meant for one person's memories. Not on a network file system.

    Args:
        url: "folder:///relative" or "folder:////absolute".
        namespace: A folder of its own below, but for "default".
        durability: Whether an acknowledged write survives a power loss.

    Raises:
        ConfigError: The system has no POSIX locks.
        StoreUnavailable: The folder cannot be made or read.
    """

    def __init__(
        self, url: str, namespace: str = "default", durability: Durability | None = None
    ) -> None:
        folder = Path(url.removeprefix(_URL)).absolute()
        if namespace != "default":
            folder /= f"namespace-{file_name(namespace)[:-6]}"
        self._folder = FolderKernel(folder, durability)
        super().__init__(self._folder)

    def all_vectors(
        self, block: str, *, session_id: str | None = None
    ) -> Iterator[tuple[list[Record], Features]]:
        self._folder.refuse_encrypted(block)
        return super().all_vectors(block, session_id=session_id)
