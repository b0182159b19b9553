"""What a worker sees to before it tends sessions, and every minute after."""

from __future__ import annotations

from collections.abc import Iterable
from time import time

from agent_memory.engine.edit.deletion import Deletion
from agent_memory.engine.system_records import Notes
from agent_memory.stores.base import SessionStore

_JOBS = "configured jobs"
_REPLACED_SECONDS = 600.0
"""By then processes with the settings of before have been replaced."""


class Preparation:
    """Has new jobs done for the past too, and finishes deletions that were interrupted.

    Args:
        store: The log.
        notes: Remember which jobs there were.
        deletion: Whose interrupted deletions are finished.
        jobs: What sessions are tended for now: the names of the blocks that absorb, and how long
            logs are kept.
    """

    def __init__(
        self, store: SessionStore, notes: Notes, deletion: Deletion, jobs: Iterable[str]
    ) -> None:
        self._store = store
        self._notes = notes
        self._deletion = deletion
        self._jobs = set(jobs)
        self._introduced = False

    def prepare(self) -> None:
        """Do it. Safe to repeat, and to interrupt."""
        if not self._introduced:
            self._introduce()
            self._introduced = True
        self._wake_again()
        self._deletion.resume()

    def _introduce(self) -> None:
        known = self._notes.read(_JOBS).keys()
        new = self._jobs - known
        if new:
            self._store.wake()  # whatever a new block has to absorb falls due
        for name in sorted(known - self._jobs):
            self._notes.drop(_JOBS, name)
        for name in sorted(new):
            self._notes.write(_JOBS, name, again_at=time() + _REPLACED_SECONDS)

    def _wake_again(self) -> None:
        """Wake once more: a worker of before puts sessions off, and knows no new block."""
        times = {name: note["again_at"] for name, note in self._notes.read(_JOBS).items()}
        late = [name for name, at in times.items() if at is not None and at <= time()]
        if late:
            self._store.wake()
        for name in late:
            self._notes.write(_JOBS, name, again_at=None)
