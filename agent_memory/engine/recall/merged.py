"""Searching what all blocks hold."""

from __future__ import annotations

import logging
from dataclasses import replace

from agent_memory.core.fusion import merge
from agent_memory.core.limits import how_many, quoted, text_of
from agent_memory.core.messages import Message
from agent_memory.core.records import Recall, Scope
from agent_memory.core.threads import apart
from agent_memory.core.tokens.counter import TokenCounter
from agent_memory.engine.guard import Guard, scope_of
from agent_memory.engine.recall.contexts import Found, existing
from agent_memory.engine.recall.fan_out import FanOut
from agent_memory.engine.recall.filtering import Filter
from agent_memory.engine.recall.log import LOG
from agent_memory.engine.recall.prompts import Recalls
from agent_memory.stores.base import SessionStore

SPARE = 2
"""Results asked of each of several blocks, over those that are shown: blocks may say the same."""

ELSEWHERE = 20
"""So many times as much is asked for where only a session's part of it is shown: how much of it
comes from elsewhere nobody knows."""

_SEARCHED = 0.05
"""Share of `min_relevance` that a search asks: who searches looks through a list."""

logger = logging.getLogger(__name__)

_ALL = Filter()


class Search:
    """Asks the blocks that can be searched, and merges what they find.

    Args:
        guard: Says whose a session is.
        store: The log.
        counter: Prices what is found.
        searcher: Asks the blocks.
        recalls: Counts how often something was found.

    Attributes:
        blocks: The blocks that are asked.
    """

    def __init__(
        self,
        guard: Guard,
        store: SessionStore,
        counter: TokenCounter,
        searcher: FanOut,
        recalls: Recalls,
    ) -> None:
        self._recalls = recalls
        self._guard = guard
        self._store = store
        self._counter = counter
        self._searcher = searcher
        self.blocks = searcher.blocks

    @apart
    def run(
        self,
        query: str,
        user_id: str | None,
        session_id: str | None,
        limit: int,
        only: Filter = _ALL,
    ) -> tuple[list[Recall], list[str]]:
        """As `AgentMemory.search`, with a warning for each block that could not be asked; they are
        logged too."""
        self._guard.check(session_id, user_id)
        query, limit = text_of("query", query), how_many("limit", limit)
        head = self._guard.owned(session_id, user_id) if session_id is not None else None
        scope = replace(
            scope_of(head, user_id, session_id),
            only_session=session_id is not None,
            floor=_SEARCHED if only.least is None else 0.0,
        )
        message = Message(role="user", content=query)
        most = limit * ELSEWHERE if only.narrows else most_of(limit, scope, len(self.blocks))
        found, warnings = self._searcher.recall(scope, message, most, only.blocks)
        there = self._searcher.marked(scope, wanted(existing(self._store, found), scope))
        kept = {
            block: only.kept(recalls, self._store, scope.user_id)
            for block, recalls in there.items()
        }
        best = merge(kept)[:limit]
        self._recalls.note(found=bool(best))
        warnings += self._unknown(only)
        for warning in warnings:
            logger.warning("search: %s", warning)
        return self.priced(best), warnings

    def _unknown(self, only: Filter) -> list[str]:
        """A warning for each block that is asked for and not there; the log may be anywhere."""
        known = [block.name for block in self.blocks]
        asked = only.blocks or frozenset()
        return [
            f"No block that can be searched is named {quoted(name)}. There are: {', '.join(known)}."
            for name in sorted(asked.difference(known, [LOG]))
        ]

    def priced(self, recalls: list[Recall]) -> list[Recall]:
        """Recalls with their size in tokens."""
        return [replace(one, tokens=self._counter.text(one.text)) for one in recalls]


def most_of(limit: int, scope: Scope, blocks: int) -> int:
    """How much to ask of each block: what several say alike is shown once."""
    if scope.only_session:
        return limit * ELSEWHERE
    return limit * SPARE if blocks > 1 else limit


def wanted(found: Found, scope: Scope) -> Found:
    """What was found, without what is not to be recalled: before what says the same is folded."""
    return {
        block: [one for one in recalls if scope.wants(one.sources)]
        for block, recalls in found.items()
    }
