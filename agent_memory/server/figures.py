"""What `/metrics` tells of the memory: looked up now and then, however often somebody asks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING

from agent_memory.core.threads import repeated
from agent_memory.engine.figures import Figures
from agent_memory.errors import AgentMemoryError
from agent_memory.server.metrics import Told
from agent_memory.server.watching import LOOK_SECONDS, Watch

if TYPE_CHECKING:
    from agent_memory.aio.memory import AsyncAgentMemory

logger = logging.getLogger(__name__)

_KEPT_SECONDS = 10.0
_SHARE = 20
"""So many times as long as a look took its result is kept: each session has to tell its lag."""
_WAIT_SECONDS = 5.0


class MemoryFigures:
    """Looks up how the memory stands; of one event loop.

    Args:
        memory: The memory.

    Attributes:
        watch: Notices that nothing is absorbed.
    """

    def __init__(self, memory: AsyncAgentMemory) -> None:
        self._memory = memory
        self._figures = Figures(memory.memory.components.store)
        self.watch = Watch(memory.memory.components)
        self._told = Told(up=None)
        self._until = 0.0
        self._looking: asyncio.Task[None] | None = None

    @contextmanager
    def kept_up(self) -> Iterator[None]:
        """Count together with other processes, and watch, while the body runs."""
        counted = self._memory.memory.components.counted
        with self._figures.kept_up(counted), repeated("watch", LOOK_SECONDS, self.watch.look):
            yield

    async def told(self) -> Told:
        """How it stands. A look that takes long is not waited for: the result before it is given,
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
            logger.error("The figures could not be looked up", exc_info=error)

    def _found(self) -> Told:
        try:
            self._figures.add(self._memory.memory.components.counted())
            stats = self._memory.memory.stats()
            return Told(True, stats, self._figures.read(), self.watch.stalled)
        except AgentMemoryError as error:
            logger.warning("The store does not tell its figures: %s", type(error).__name__)
            return Told(up=False, stalled=self.watch.stalled)
