"""Why blocks could not absorb: noted in the store, so that every process can tell."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from time import monotonic

from agent_memory.core import threads
from agent_memory.core.records import Lease
from agent_memory.engine.processing.dead_letters import DeadLetters
from agent_memory.engine.recall.runner import TimeLimited
from agent_memory.errors import LeaseLost, StoreError

logger = logging.getLogger(__name__)

_LOOKED_FOR = 10.0
"""Seconds for which is believed what the store said of blocks that fail."""
_MOST_NOTED = 10_000


class Failures:
    """What this process met, and what others noted.

    Nothing waits long for the store here: it may be what fails.

    Args:
        dead_letters: Where it is noted.
        blocks: The blocks that absorb, by name.
        patience: Seconds to wait for the store.
    """

    def __init__(self, dead_letters: DeadLetters, blocks: Collection[str], patience: float) -> None:
        self._dead_letters = dead_letters
        self._blocks = blocks
        self._patience = patience
        self._limited = TimeLimited()
        self._met: dict[str, str] = {}
        self._stored: dict[str, str] = {}
        self._looked: float | None = None
        self._noted: dict[tuple[str, str], str] = {}  # by this process, of sessions

    def of_blocks(self, *, now: bool = False) -> dict[str, str]:
        """By name, why blocks could not absorb, the last time; in whatever process that was.

        Args:
            now: As the store has it now; else as it had it some seconds ago.
        """
        if now:
            self._look()
        elif self._looked is None:
            self._looked = monotonic()
            self._within(self._look)
        elif monotonic() - self._looked >= _LOOKED_FOR:
            self._looked = monotonic()
            threads.start("failures", self._look)
        return {**self._stored, **self._met}

    def troubles(self, besides: Collection[str] = ()) -> list[str]:
        """What a context should warn of: the blocks that could not absorb, the last time.

        Args:
            besides: Blocks of which more is known.
        """
        return [
            f"The block {name!r} could not absorb, and will try again: {error}"
            for name, error in self.of_blocks().items()
            if name not in besides
        ]

    def met(self, block: str, message: str) -> None:
        """A block could not absorb."""
        if self._met.get(block) != message:
            logger.warning("block %r could not absorb, and will try again: %s", block, message)
        self._met[block] = message

    def note(self, block: str, first: int, last: int, message: str, lease: Lease) -> bool:
        """Note a batch that waits for what fails around it; whether that is new.

        Raises:
            LeaseLost: The session was taken over.
        """
        session = (block, lease.session_id)
        if self._noted.get(session) == message:
            return False
        if not self._within(lambda: self._dead_letters.note(block, first, last, message, lease)):
            return True
        if len(self._noted) >= _MOST_NOTED:
            self._noted.clear()
        self._noted[session] = message
        return True

    def given_up(self, block: str) -> None:
        """What a block could not absorb is a dead letter now."""
        self._met.pop(block, None)

    def over(self, block: str, session_id: str) -> None:
        """A block absorbed something of a session: it works again."""
        self._met.pop(block, None)
        self._noted.pop((block, session_id), None)
        if block in self.of_blocks():
            self._within(lambda: self._dead_letters.works(block))
            self._stored.pop(block, None)

    def _look(self) -> None:
        found = {name: self._dead_letters.failing(name) for name in self._blocks}
        self._stored = {name: error for name, error in found.items() if error is not None}

    def _within(self, call: Callable[[], None]) -> bool:
        """Make a call of the store; whether it was done in time.

        Raises:
            LeaseLost: The session was taken over.
        """
        try:
            self._limited.run("failures", call, self._patience, lambda: None)
        except LeaseLost:
            raise
        except (StoreError, TimeoutError):
            return False
        return True
