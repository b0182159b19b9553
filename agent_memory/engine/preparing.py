"""What a worker sees to before it tends sessions, and every minute after."""

from __future__ import annotations

from collections.abc import Iterable
from time import time

from agent_memory.engine.deletion import Deletion
from agent_memory.engine.notes import Notes
from agent_memory.stores.base import SessionStore

_BLOCKS = "configured blocks"
_REPLACED_SECONDS = 600.0
"""By then processes with the settings of before have been replaced."""


class Preparation:
    """Has new blocks absorb the past, and finishes deletions that were interrupted.

    Args:
        store: The log.
        notes: Remember which blocks there were.
        deletion: Whose interrupted deletions are finished.
        blocks: Names of the blocks that absorb now.
    """

    def __init__(
        self, store: SessionStore, notes: Notes, deletion: Deletion, blocks: Iterable[str]
    ) -> None:
        self._store = store
        self._notes = notes
        self._deletion = deletion
        self._blocks = set(blocks)
        self._introduced = False

    def prepare(self) -> None:
        """Do it. Safe to repeat, and to interrupt."""
        if not self._introduced:
            self._introduce()
            self._introduced = True
        self._wake_again()
        self._deletion.resume()

    def _introduce(self) -> None:
        known = self._notes.read(_BLOCKS).keys()
        new = self._blocks - known
        if new:
            self._store.wake()  # whatever a new block has to absorb falls due
        for name in sorted(known - self._blocks):
            self._notes.drop(_BLOCKS, name)
        for name in sorted(new):
            self._notes.write(_BLOCKS, name, again_at=time() + _REPLACED_SECONDS)

    def _wake_again(self) -> None:
        """Wake once more: a worker of before puts sessions off, and knows no new block."""
        times = {name: note["again_at"] for name, note in self._notes.read(_BLOCKS).items()}
        late = [name for name, at in times.items() if at is not None and at <= time()]
        if late:
            self._store.wake()
        for name in late:
            self._notes.write(_BLOCKS, name, again_at=None)
