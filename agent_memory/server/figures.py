"""The memory's metrics for `/metrics`, cached between requests."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING

from agent_memory.core.threads import repeated
from agent_memory.engine.stats import SharedMetrics
from agent_memory.errors import AgentMemoryError
from agent_memory.server.metrics import Told
from agent_memory.server.watching import LOOK_SECONDS, Watch

if TYPE_CHECKING:
    from agent_memory.aio.memory import AsyncAgentMemory

logger = logging.getLogger(__name__)

_KEPT_SECONDS = 10.0
_SHARE = 20
"""A result is cached for this many times the duration of the lookup, which reads all sessions."""
_WAIT_SECONDS = 5.0


class MemoryFigures:
    """Reads and caches the memory's metrics. Belongs to one event loop.

    Args:
        memory: The memory.

    Attributes:
        watch: Detects blocks that have stopped absorbing.
    """

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
