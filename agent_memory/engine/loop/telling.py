"""Telling blocks where turns begin and end."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence

from agent_memory.core.messages import Message
from agent_memory.core.records import Scope
from agent_memory.core.turns import Turn
from agent_memory.engine.recall.runner import resolve
from agent_memory.ltm_blocks.base import Block

logger = logging.getLogger(__name__)


class Telling:
    """Tells those blocks that want to be told.

    Args:
        blocks: The configured blocks.
        scope: Says whose a session is.
    """

    def __init__(
        self, blocks: Iterable[Block], scope: Callable[[str | None, str | None], Scope]
    ) -> None:
        self._began = [one for one in blocks if type(one).turn_began is not Block.turn_began]
        self._ended = [one for one in blocks if type(one).turn_ended is not Block.turn_ended]
        self._scope = scope

    def __call__(self, turn: Turn, said: Sequence[Message] | None) -> None:
        """A turn has begun; or, with all that was said, it is stored."""
        told = self._began if said is None else self._ended
        scope = self._scope(turn.user_id, turn.session_id) if told else None
        for block in told:
            assert scope is not None
            try:
                if said is None:
                    resolve(block.turn_began(scope, turn))
                else:
                    resolve(block.turn_ended(scope, turn, said))
            except Exception:  # somebody's code: the turn goes on, and is stored, whatever it does
                logger.exception("block %r failed when it was told of a turn", block.name)
