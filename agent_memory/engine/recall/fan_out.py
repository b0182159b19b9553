"""Asking all blocks at once, within a time limit; what fails is named, never raised."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType

from agent_memory.core.messages import Message
from agent_memory.core.processes import fork_safe_lock
from agent_memory.core.records import Recall, Scope
from agent_memory.engine.backoff import Backoff
from agent_memory.engine.recall.runner import Runner, resolve
from agent_memory.ltm_blocks.base import Block


class Recaller:
    """Reads blocks in parallel.

    Args:
        blocks: Bound blocks, in order.
        timeout: Seconds to wait for them.

    Attributes:
        blocks: The blocks.
    """

    def __init__(self, blocks: Sequence[Block], timeout: float) -> None:
        self.blocks = blocks
        self._timeout = timeout
        self._panel = Panel()

    def recall(
        self, scope: Scope, message: Message | None, limit: int
    ) -> tuple[dict[str, list[Recall]], list[str]]:
        """What each block recalls, and a warning for each that failed or was too slow.

        Args:
            scope: Whose memory.
            message: What it is to bear on.
            limit: So much of each block at most.
        """
        calls = {
            block.name: partial(ask_block, block, block.name, scope, message, limit)
            for block in self.blocks
            if concerns(block, scope)
        }
        return self._panel.ask(calls, self._timeout)


class Panel:
    """Asks many at once, each within a time limit; what fails is named, never raised.

    One that keeps failing rests for a while, so that not every call waits for it.
    """

    def __init__(self) -> None:
        self._runner = Runner()
        self._breaker = _Breaker()

    def ask(
        self,
        calls: Mapping[str, Callable[[], list[Recall]]],
        timeout: float,
        timeouts: Mapping[str, float] = MappingProxyType({}),
    ) -> tuple[dict[str, list[Recall]], list[str]]:
        """What each call gives, and a warning for each that failed or was too slow.

        Args:
            calls: By the block's name.
            timeout: Seconds to wait for them.
            timeouts: By the block's name, the seconds of those that have their own.
        """
        asked = {name: call for name, call in calls.items() if self._breaker.ask(name)}
        outcomes, slow = self._runner.gather(asked, timeout, timeouts)
        warnings = [
            f"The block {name!r} failed before, and is asked again later."
            for name in calls
            if name not in asked
        ]
        for name in slow:
            self._breaker.told(name, worked=False)
            seconds = timeouts.get(name, timeout)
            warnings.append(f"The block {name!r} did not answer within {seconds:g} s.")
        found: dict[str, list[Recall]] = {}
        for name, outcome in outcomes.items():
            self._breaker.told(name, worked=not isinstance(outcome, Exception))
            if isinstance(outcome, Exception):
                warnings.append(f"The block {name!r} failed: {type(outcome).__name__}: {outcome}")
            else:
                found[name] = outcome
        return found, warnings


class _Breaker:
    """Which blocks may be asked now.

    One that works is asked by everybody. One that failed is asked by one caller at a time, each
    time after a longer rest, until it works again.
    """

    def __init__(self) -> None:
        self._lock = fork_safe_lock()
        self._rests = Backoff()

    def ask(self, name: str) -> bool:
        """Whether to ask a block; `told` is to be called with what comes of it."""
        with self._lock:
            if self._rests.idle(name):
                return True
            if not self._rests.ready(name):
                return False
            self._rests.failed(name)  # until the answer is there, so that nobody else asks
            return True

    def told(self, name: str, *, worked: bool) -> None:
        """What came of it. Of many callers whom it failed at once, the first counts."""
        with self._lock:
            if worked:
                self._rests.succeeded(name)
            elif self._rests.idle(name):
                self._rests.failed(name)


def concerns(block: Block, scope: Scope) -> bool:
    """Whether to ask a block: what absorbs knows nothing that is everybody's."""
    return scope.is_somebodys or not block.absorbs


def ask_block(
    block: Block, name: str, scope: Scope, message: Message | None, limit: int
) -> list[Recall]:
    """What a block recalls, awaited where that is due, under a name.

    Raises:
        TypeError: A recall has no text.
    """
    return [_named(recall, name) for recall in resolve(block.get(scope, message, limit))]


def _named(recall: Recall, name: str) -> Recall:
    """A recall under its block's name, which limits, context and statistics go by."""
    if not isinstance(recall.text, str):
        raise TypeError(f"The text of recall {recall.id!r} is {recall.text!r}.")
    return replace(recall, block=name, score=float(recall.score))
