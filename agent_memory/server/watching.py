"""Noticing that nothing is absorbed, although something waits: no worker runs, or a block fails at
every batch. What is remembered is then no more than what the log says, and nobody would see it.
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
    """A block that absorbs nothing, although something waits for it.

    Attributes:
        block: Its name.
        why: In a few words.
        seconds: For how long, at least.
    """

    block: str
    why: str
    seconds: float


class Watch:
    """Looks now and then, and says it loudly. It reads some sessions that are due, and no others.

    Args:
        parts: The memory's.
        long: For how many seconds nothing may be absorbed.
        clock: Tells the time, in seconds since the epoch.

    Attributes:
        stalled: What was found the last time.
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
        """Look, and log an error for each block that absorbs nothing; True, to be called again."""
        try:
            self.stalled = self._found()
        except StoreError as error:
            logger.warning("What waits cannot be read: %s", type(error).__name__)
            return True
        for one in self.stalled:
            logger.error(
                "Nothing is absorbed, although messages wait",
                extra=fields(block=one.block, why=one.why, seconds=round(one.seconds)),
            )
        return True

    def _found(self) -> list[Stalled]:
        now, blocks = self._clock(), self._parts.absorber.blocks
        seen = self._parts.signs.read()
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
