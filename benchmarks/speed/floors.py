"""The floors: the same work without a memory library, which shows its least cost.

`python -m benchmarks.speed.floors NAME FOLDER` serves one floor; see `benchmarks.speed.serving`.
"""

import json
import sqlite3
import sys
import threading
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

from benchmarks.messages import Chat
from benchmarks.speed.backend import SyncBackend
from benchmarks.speed.serving import About, Server, serve

_WINDOW = 60  # about as many messages of 60 tokens as fit into 4,096
_TABLE = """
CREATE TABLE IF NOT EXISTS messages (
  session TEXT NOT NULL, seq INTEGER NOT NULL, data TEXT NOT NULL, PRIMARY KEY (session, seq)
) WITHOUT ROWID
"""


class ListFloor(SyncBackend):
    """A list for each session."""

    def __init__(self, folder: Path, budget: int | None) -> None:
        super().__init__(folder, budget)
        self._sessions: defaultdict[str, list[Chat]] = defaultdict(list)

    def fill(self, session: str, messages: Sequence[Chat]) -> None:
        self._sessions[session].extend(messages)

    def append(self, session: str, message: Chat) -> None:
        self._sessions[session].append(message)

    def get(self, session: str) -> int:
        held = self._sessions[session]
        return len(held[:] if self.budget is None else held[-_WINDOW:])

    def read(self, session: str) -> list[str]:
        return [message["content"] for message in self._sessions[session]]


class SQLiteFloor(SyncBackend):
    """Each append is a transaction. A get reads and decodes rows. Threads share a connection."""

    def __init__(self, folder: Path, budget: int | None) -> None:
        super().__init__(folder, budget)
        self._sizes: defaultdict[str, int] = defaultdict(int)
        self._lock = threading.Lock()
        self._connection = sqlite3.connect(
            folder / "floor.db", isolation_level=None, check_same_thread=False
        )
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=FULL")
        self._connection.execute(_TABLE)

    def prepare(self, message: Chat) -> str:
        return json.dumps(message)

    def fill(self, session: str, messages: Sequence[str]) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        for message in messages:
            self.append(session, message)
        self._connection.execute("COMMIT")

    def append(self, session: str, message: str) -> None:
        self._sizes[session] = seq = self._sizes[session] + 1
        with self._lock:
            self._connection.execute(
                "INSERT INTO messages VALUES (?, ?, ?)", (session, seq, message)
            )

    def get(self, session: str) -> int:
        return len(
            self._rows(session, 0 if self.budget is None else self._sizes[session] - _WINDOW)
        )

    def read(self, session: str) -> list[str]:
        return [message["content"] for message in self._rows(session, 0)]

    def close(self) -> None:
        self._connection.close()

    def _rows(self, session: str, after: int) -> list[Chat]:
        with self._lock:
            rows = self._connection.execute(
                "SELECT data FROM messages WHERE session = ? AND seq > ? ORDER BY seq",
                (session, after),
            ).fetchall()
        return [json.loads(data) for (data,) in rows]


class RedisFloor(SyncBackend):
    """RPUSH and LRANGE, on the Redis server at port 6379 of this machine."""

    def __init__(self, folder: Path, budget: int | None) -> None:
        import redis

        super().__init__(folder, budget)
        self._client = redis.Redis(port=6379)
        self._prefix = f"agent-memory-bench:{uuid4().hex}:"
        self._client.ping()

    def prepare(self, message: Chat) -> str:
        return json.dumps(message)

    def fill(self, session: str, messages: Sequence[str]) -> None:
        self._client.rpush(self._prefix + session, *messages)

    def append(self, session: str, message: str) -> None:
        self._client.rpush(self._prefix + session, message)

    def get(self, session: str) -> int:
        return len(self._range(session, 0 if self.budget is None else -_WINDOW))

    def read(self, session: str) -> list[str]:
        return [message["content"] for message in self._range(session, 0)]

    def close(self) -> None:
        for key in self._client.scan_iter(f"{self._prefix}*", count=1000):
            self._client.delete(key)
        self._client.close()

    def _range(self, session: str, start: int) -> list[Chat]:
        found: Any = self._client.lrange(self._prefix + session, start, -1)
        return [json.loads(data) for data in found]


def _make(name: str, folder: Path) -> Server:
    match name:
        case "list":
            about = About(f"Python {sys.version.split()[0]}", "none", budgets=True)
            return Server(about, ListFloor, folder)
        case "sqlite":
            version, durability = (
                f"SQLite {sqlite3.sqlite_version}",
                "power (WAL, synchronous=FULL)",
            )
            note = "one insert a transaction; the JSON is ready, the number known"
            return Server(About(version, durability, note, budgets=True), SQLiteFloor, folder)
        case _:
            import redis

            note = "RPUSH and LRANGE, one connection a thread"
            about = About(f"redis {redis.__version__}", "as the server is set", note, budgets=True)
            return Server(about, RedisFloor, folder)


if __name__ == "__main__":
    which = sys.argv.pop(1)
    serve(lambda folder: _make(which, folder))
