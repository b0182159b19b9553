"""`MemoryStore`: all data in a SQLite database in memory, lost when the process ends."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import TypeVar

from agent_memory.core.processes import fork_safe_lock
from agent_memory.errors import StoreError, StoreUnavailable
from agent_memory.stores.kernel.rules import WITHIN_HANDLER
from agent_memory.stores.kernel.vectors import KernelStore
from agent_memory.stores.sql.database import SQLDatabase
from agent_memory.stores.sql.kernel import SQLKernel
from agent_memory.stores.sql.migrations import migrate
from agent_memory.stores.sql.sqlite_file import Connection

T = TypeVar("T")


class MemoryDatabase(SQLDatabase):
    """A SQLite database in memory, with one connection. The data exists as long as the object."""

    def __init__(self) -> None:
        self._lock = fork_safe_lock(own=True)
        self._is_writing = False
        self._raw = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self._connection = Connection(self._raw)
        self.write(migrate)

    def read(self, work: Callable[[Connection], T]) -> T:
        with self._lock:
            try:
                return work(self._connection)
            except sqlite3.Error as error:
                raise StoreError(f"The SQLite database in memory failed: {error}.") from error

    def alone(self, work: Callable[[Connection], T], *, synced: bool = True) -> T:
        with self._lock:
            if self._is_writing:
                raise StoreUnavailable(WITHIN_HANDLER)
            self._is_writing = True
            try:
                return self.read(work)
            finally:
                self._raw.rollback()  # a signal may have interrupted the end of a transaction
                self._is_writing = False

    def __del__(self) -> None:
        self._raw.close()


class MemoryStore(KernelStore):
    """A store for tests and trials. `close` does nothing: the data exists as long as the object.

    Args:
        namespace: Ignored, because instances share no data.
    """

    def __init__(self, namespace: str = "default") -> None:
        super().__init__(SQLKernel(MemoryDatabase(), namespace))
