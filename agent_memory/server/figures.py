"""The memory's metrics for `/metrics`, and the detection of blocks that have stopped absorbing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic, time
from typing import TYPE_CHECKING

from agent_memory.core.threads import repeated
from agent_memory.engine.stats import SharedMetrics
from agent_memory.errors import AgentMemoryError, StoreError
from agent_memory.server.logs import fields
from agent_memory.server.metrics import Told

if TYPE_CHECKING:
    from agent_memory.aio.memory import AsyncAgentMemory
    from agent_memory.engine.assembly import Components


logger = logging.getLogger(__name__)

_KEPT_SECONDS = 10.0
_SHARE = 20
"""A result is cached for this many times the duration of the lookup, which reads all sessions, but
at least for `_KEPT_SECONDS`."""
_WAIT_SECONDS = 5.0


class MemoryFigures:
    """Reads and caches the memory's metrics. Belongs to one event loop."""

    def __init__(self, memory: AsyncAgentMemory) -> None:
        self._memory = memory
        self._figures = SharedMetrics(memory.memory.components.store)
        self.watch = Watch(memory.memory.components)
        self._told = Told(up=None)
        self._until = 0.0
        self._looking: asyncio.Task[None] | None = None

    @contextmanager
    def kept_up(self) -> Iterator[None]:
        """Share counters with other processes, and run the watch, while the body runs."""
        counted = self._memory.memory.components.counted
        with self._figures.kept_up(counted), repeated("watch", LOOK_SECONDS, self.watch.look):
            yield

    async def told(self) -> Told:
        """Return the metrics. If a lookup takes longer than 5 seconds, return the previous result,
        if there is one.
        """
        if self._looking is None and monotonic() >= self._until:
            self._looking = asyncio.ensure_future(self._look())
            self._looking.add_done_callback(self._looked)
        if self._looking is not None:
            await asyncio.wait([self._looking], timeout=_WAIT_SECONDS)
        return self._told

    async def _look(self) -> None:
        begun = monotonic()
        self._told = await self._memory.run(self._found)
        self._until = monotonic() + max(_KEPT_SECONDS, _SHARE * (monotonic() - begun))

    def _looked(self, done: asyncio.Task[None]) -> None:
        self._looking = None
        if not done.cancelled() and (error := done.exception()) is not None:
            logger.error("The metrics could not be read", exc_info=error)

    def _found(self) -> Told:
        try:
            self._figures.add(self._memory.memory.components.counted())
            stats = self._memory.memory.stats()
            return Told(True, stats, self._figures.read(), self.watch.stalled)
        except AgentMemoryError as error:
            logger.warning("The store's metrics could not be read: %s", type(error).__name__)
            return Told(up=False, stalled=self.watch.stalled)


LOOK_SECONDS = 60.0
LONG_SECONDS = 900.0
_SOME = 32
_NO_WORKER = "no worker runs"
_FAILS = "every batch fails"


@dataclass(frozen=True, slots=True)
class Stalled:
    """A block that absorbs nothing although messages are pending."""

    block: str
    why: str
    seconds: float


class Watch:
    """Checks for stalled blocks and logs them as errors. It reads at most 32 due sessions.

    Args:
        long: The seconds without absorbing after which a block counts as stalled.
        clock: Returns the time in seconds since the epoch.
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
