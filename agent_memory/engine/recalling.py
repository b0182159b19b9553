"""Asking all blocks at once, within a time limit; what fails is named, never raised."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from agent_memory.engine.bridge import gather, resolve
from agent_memory.ltm_blocks.base import Block
from agent_memory.messages import Message
from agent_memory.records import Recall, Scope

CANDIDATES = 50
"""What each block is asked for; the token budget decides how much of it is used."""


class Recaller:
    """Reads blocks in parallel.

    Args:
        blocks: Bound blocks, in order.
        timeout: Seconds to wait for them.
    """

    def __init__(self, blocks: Sequence[Block], timeout: float) -> None:
        self._blocks = blocks
        self._timeout = timeout

    def recall(
        self, scope: Scope, message: Message | None
    ) -> tuple[dict[str, list[Recall]], list[str]]:
        """What each block recalls, and a warning for each that failed or was too slow."""
        has_owner = scope.user_id is not None or scope.session_id is not None
        asked = [block for block in self._blocks if has_owner or not block.absorbs]
        outcomes, slow = gather(
            {block.name: partial(_ask, block, scope, message) for block in asked}, self._timeout
        )
        found: dict[str, list[Recall]] = {}
        warnings = [
            f"The block {name!r} did not answer within {self._timeout:g} s." for name in slow
        ]
        for name, outcome in outcomes.items():
            if isinstance(outcome, Exception):
                warnings.append(f"The block {name!r} failed: {type(outcome).__name__}: {outcome}")
            else:
                found[name] = outcome
        return found, warnings


def _ask(block: Block, scope: Scope, message: Message | None) -> list[Recall]:
    found = resolve(block.get(scope, message, CANDIDATES))
    # the name is what limits, context and statistics go by, whatever the block wrote
    return [replace(recall, block=block.name) for recall in found]
