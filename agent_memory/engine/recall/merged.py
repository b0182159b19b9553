"""Searching what all blocks hold, and a session's log where none absorbs it."""

from __future__ import annotations

from dataclasses import replace

from agent_memory.core.fusion import merge
from agent_memory.core.messages import Message
from agent_memory.core.records import Recall
from agent_memory.core.tokens.counter import TokenCounter
from agent_memory.engine.guard import Guard, scope_of
from agent_memory.engine.recall.contexts import existing
from agent_memory.engine.recall.fan_out import FanOut
from agent_memory.engine.recall.search import LOG, search_log
from agent_memory.stores.base import SessionStore

ELSEWHERE = 20
"""So many times as much is asked for where only a session's part of it is shown: how much of it
comes from elsewhere nobody knows."""


class Search:
    """Asks the blocks that can be searched, and merges what they find.

    Args:
        guard: Says whose a session is.
        store: The log.
        counter: Prices what is found.
        searcher: Asks the blocks.
        absorbs: Whether any block absorbs the log; else a session is searched in its log.

    Attributes:
        blocks: The blocks that are asked.
        absorbs: As given.
    """

    def __init__(
        self,
        guard: Guard,
        store: SessionStore,
        counter: TokenCounter,
        searcher: FanOut,
        *,
        absorbs: bool,
    ) -> None:
        self._guard = guard
        self._store = store
        self._counter = counter
        self._searcher = searcher
        self.blocks = searcher.blocks
        self.absorbs = absorbs

    def run(
        self, query: str, user_id: str | None, session_id: str | None, limit: int
    ) -> tuple[list[Recall], list[str]]:
        """As `AgentMemory.search`, with a warning for each block that could not be asked."""
        self._guard.check(session_id, user_id)
        head = self._guard.owned(session_id, user_id) if session_id is not None else None
        most = limit if session_id is None else ELSEWHERE * limit
        scope, message = scope_of(head, user_id, session_id), Message(role="user", content=query)
        found, warnings = self._searcher.recall(scope, message, most)
        found = existing(self._store, found)
        if head is not None and not self.absorbs:
            found[LOG] = search_log(self._store, head, query, limit)
        merged = [
            recall
            for recall in merge(found)
            if session_id is None
            or not recall.sources
            or any(source[0] == session_id for source in recall.sources)
        ]
        return self.priced(merged[:limit]), warnings

    def priced(self, recalls: list[Recall]) -> list[Recall]:
        """Recalls with their size in tokens."""
        return [replace(one, tokens=self._counter.text(one.text)) for one in recalls]
