"""Heartbeats of workers and blocks, and the backlog of sessions with many pending messages."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Sequence
from time import time

from agent_memory.core.processes import fork_safe_lock
from agent_memory.core.records import Head, Lag
from agent_memory.engine.system_records import Kind, SystemRecords

_WORKER = "worker"
_BLOCK = "block "


class Heartbeats:
    """The times at which workers last looked for work, and blocks last absorbed a batch."""

    def __init__(self, records: SystemRecords) -> None:
        self._records = records
        self._absorbed: dict[str, float] = {}
        self._written: dict[str, float] = {}

    def absorbed(self, block: str) -> None:
        """Record that a block absorbed a batch. The next `beat` stores it."""
        self._absorbed[block] = time()

    def beat(self) -> None:
        """Store the heartbeats of this process's worker and blocks."""
        self._records.write(Kind.HEARTBEATS, _WORKER, at=time())
        for block, at in list(self._absorbed.items()):
            if self._written.get(block) != at:
                self._records.write(Kind.HEARTBEATS, f"{_BLOCK}{block}", at=at)
                self._written[block] = at

    def read(self) -> tuple[float, dict[str, float]]:
        """Return the time of the newest heartbeat of workers, and of each block. 0 means never."""
        notes = self._records.read(Kind.HEARTBEATS)
        times = {name: float(note["at"]) for name, note in notes.items()}
        blocks = {
            name.removeprefix(_BLOCK): at for name, at in times.items() if name.startswith(_BLOCK)
        }
        return times.get(_WORKER, 0.0), blocks


_MOST = 1_000
_INLINE = 64  # the most messages that an update itself absorbs


class Backlog:
    """Sessions with many pending messages, which a worker absorbs after the next updates.

    Only blocks that recall pending messages use the backlog.
    """

    def __init__(self, blocks: Collection[str]) -> None:
        self._blocks = frozenset(blocks)
        self._lock = fork_safe_lock()
        self._sessions: OrderedDict[str, None] = OrderedDict()

    def note(self, block: str, lags: Sequence[Lag]) -> None:
        """Add the sessions of `lags`, the oldest first. `lags` begins with the newest session."""
        if block not in self._blocks:
            return
        with self._lock:
            for lag in reversed(lags):
                if len(self._sessions) < _MOST:
                    self._sessions.setdefault(lag.session_id)

    def takes(self, head: Head, block: str, upto: int) -> bool:
        """Add a session that has too many messages for an update. Return whether it was added."""
        if block not in self._blocks or upto - head.cursors.get(block, 0) <= _INLINE:
            return False
        with self._lock:
            self._sessions.setdefault(head.session_id)
        return True

    def holds(self, session_id: str, block: str) -> bool:
        """Return whether a block must absorb all pending messages of a session."""
        return bool(self._sessions) and block in self._blocks and session_id in self._sessions

    def next(self) -> str | None:
        """Return the next session and move it to the end. `done` removes it."""
        if not self._sessions:
            return None
        with self._lock:
            name = next(iter(self._sessions), None)
            if name is not None:
                self._sessions.move_to_end(name)
            return name

    def done(self, session_id: str, head: Head | None) -> None:
        """Remove a session if its blocks are up to date, or if its head is None."""
        if session_id in self._sessions and (
            head is None or not any(head.lag(block) for block in self._blocks)
        ):
            with self._lock:
                self._sessions.pop(session_id, None)
