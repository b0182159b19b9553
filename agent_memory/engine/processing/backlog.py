"""Sessions of which so much waits that questions take longer: they are absorbed ahead of time."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Sequence

from agent_memory.core.processes import fork_safe_lock
from agent_memory.core.records import Head, Lag

_MOST = 1_000


class Backlog:
    """What was found to wait, noted by questions and worked off by updates.

    Args:
        blocks: The blocks that recall what they have not absorbed yet: to them it makes a
            difference, and they ask no language model.
    """

    def __init__(self, blocks: Collection[str]) -> None:
        self._blocks = frozenset(blocks)
        self._lock = fork_safe_lock()
        self._sessions: OrderedDict[str, None] = OrderedDict()

    def note(self, block: str, lags: Sequence[Lag]) -> None:
        """Much waits for a block, in these sessions, the newest of them first."""
        if block not in self._blocks:
            return
        with self._lock:
            for lag in reversed(lags):
                if len(self._sessions) < _MOST:
                    self._sessions.setdefault(lag.session_id)

    def holds(self, session_id: str, block: str) -> bool:
        """Whether a block is to absorb all of a session."""
        return bool(self._sessions) and block in self._blocks and session_id in self._sessions

    def next(self) -> str | None:
        """The session whose turn it is; it goes to the end until it is `done`."""
        if not self._sessions:
            return None
        with self._lock:
            name = next(iter(self._sessions), None)
            if name is not None:
                self._sessions.move_to_end(name)
            return name

    def done(self, session_id: str, head: Head | None) -> None:
        """A session was worked on.

        Args:
            session_id: The session.
            head: As it is now; None where it is gone.
        """
        if session_id in self._sessions and (
            head is None or not any(head.lag(block) for block in self._blocks)
        ):
            with self._lock:
                self._sessions.pop(session_id, None)
