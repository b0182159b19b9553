"""Detect blocks that absorb nothing although messages are pending.

Either no worker runs, or every batch of a block fails. Long-term memory then stops growing without
any other symptom.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from time import time
from typing import TYPE_CHECKING

from agent_memory.errors import StoreError
from agent_memory.server.logs import fields

if TYPE_CHECKING:
    from agent_memory.engine.assembly import Components

logger = logging.getLogger(__name__)

LOOK_SECONDS = 60.0
LONG_SECONDS = 900.0
_SOME = 32
_NO_WORKER = "no worker runs"
_FAILS = "every batch fails"


@dataclass(frozen=True, slots=True)
class Stalled:
    """A block that absorbs nothing although messages are pending.

    Attributes:
        block: Its name.
        why: The reason, in a few words.
        seconds: The least time since it last absorbed something.
    """

    block: str
    why: str
    seconds: float


class Watch:
    """Checks for stalled blocks and logs them as errors. It reads at most 32 due sessions.

    Args:
        parts: The memory's components.
        long: The seconds without absorbing after which a block counts as stalled.
        clock: Returns the time in seconds since the epoch.

    Attributes:
        stalled: The blocks found by the last check.
    """

    def __init__(
        self, parts: Components, long: float = LONG_SECONDS, clock: Callable[[], float] = time
    ) -> None:
        self._parts = parts
        self._long = long
        self._clock = clock
        self._waiting: dict[tuple[str, str], float] = {}  # since when, by block and why
        self.stalled: list[Stalled] = []

    def look(self) -> bool:
        """Check, and log an error for each stalled block. Returns True: call it again."""
        try:
            self.stalled = self._found()
        except StoreError as error:
            logger.warning("Pending sessions cannot be read: %s", type(error).__name__)
            return True
        for one in self.stalled:
            logger.error(
                "A block absorbs nothing although messages are pending",
                extra=fields(block=one.block, why=one.why, seconds=round(one.seconds)),
            )
        return True

    def _found(self) -> list[Stalled]:
        now, blocks = self._clock(), self._parts.absorber.blocks
        seen = self._parts.heartbeats.read()
        due = [head for head in self._parts.store.due(_SOME) if not head.deleting]
        last: dict[tuple[str, str], float] = {}
        for name in blocks:
            if any(head.lag(name) for head in due):
                last[name, _NO_WORKER] = seen.worker
            if self._parts.dead_letters.failing(name) is not None:
                last[name, _FAILS] = seen.absorbed(name)
        self._waiting = {one: self._waiting.get(one, now) for one in last}
        found = [Stalled(*one, now - max(begun, last[one])) for one, begun in self._waiting.items()]
        return [one for one in found if one.seconds >= self._long]
