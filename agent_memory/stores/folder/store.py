"""`FolderStore`: all data in a folder of JSON Lines files, one for each session."""

from __future__ import annotations

from pathlib import Path

from agent_memory.stores.base import Durability
from agent_memory.stores.folder.kernel import FolderKernel
from agent_memory.stores.folder.lines import file_name
from agent_memory.stores.kernel.vectors import KernelStore


class FolderStore(KernelStore):
    """Stores all data in plain files that people can read, search, version and copy.

        notes/
            sessions/monday-0a1b2c3d4e.jsonl    the session, then its messages, one per line
            records/extractive-....jsonl        records of a block, one per line
            vectors/vector-....jsonl            records with their search features, one per line
            .state.json                         leases and due times, of this machine only

    Writes are atomic, under a lock that all processes of a machine share. Each call reads files
    that have changed, so other processes may write, and people may edit files between calls.

    Limitations: each write rewrites its whole file, which is slow. Use this store for one person's
    memories, and not on a network file system.

    Args:
        url: "folder:///relative" or "folder:////absolute".
        namespace: A subfolder; "default" is the folder itself.
        durability: Whether an acknowledged write survives a power loss.

    Raises:
        ConfigError: The system has no POSIX locks.
        StoreUnavailable: The folder cannot be created or read.
    """

    def __init__(
        self, url: str, namespace: str = "default", durability: Durability | None = None
    ) -> None:
        folder = Path(url.removeprefix("folder:///")).absolute()
        if namespace != "default":
            folder /= f"namespace-{file_name(namespace)[:-6]}"
        self._folder = FolderKernel(folder, durability)
        super().__init__(self._folder)
