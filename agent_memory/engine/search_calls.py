"""The call of `AgentMemory` that searches, and what it has in common with `get`."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from agent_memory.core.fusion import merge
from agent_memory.core.messages import Message
from agent_memory.core.records import Recall, Scope
from agent_memory.engine.calls import Calls, scope_of
from agent_memory.engine.recall.search import LOG, search_log

if TYPE_CHECKING:
    from agent_memory.core.tokens.counter import TokenCounter
    from agent_memory.engine.assembly import Parts
    from agent_memory.engine.recall.fan_out import FanOut
    from agent_memory.stores.base import Store

logger = logging.getLogger(__name__)

_ELSEWHERE = 20


class SearchCalls(Calls):
    """What long-term memory holds, without a window."""

    _parts: Parts
    _store: Store
    _counter: TokenCounter

    def search(
        self,
        query: str,
        *,
        user_id: str | None = None,
        session_id: str | None = None,
        limit: int = 10,
    ) -> list[Recall]:
        """What blocks recall, and what was noted, merged best first, without a window.

        Where no block absorbs, a session is searched in its log, by words alone: the newest 5,000
        messages, for which an index is made each time.

        Args:
            query: What to look for.
            user_id: Whose memory to search.
            session_id: Only what comes from this session, what was noted outright, and what holds
                for everyone.
            limit: At most this many.

        Without user and session, only what holds for everyone is searched.
        """
        found, warnings = self._searched(query, user_id, session_id, limit)
        for warning in warnings:
            logger.warning("search: %s", warning)
        return found

    def _searched(
        self, query: str, user_id: str | None, session_id: str | None, limit: int
    ) -> tuple[list[Recall], list[str]]:
        """As `search`, with a warning for each block that could not be asked."""
        self._check(session_id, user_id)
        head = self._owned(session_id, user_id) if session_id is not None else None
        # of what is found elsewhere nothing is shown, and how much that is nobody knows
        most = limit if session_id is None else _ELSEWHERE * limit
        scope, message = scope_of(head, user_id, session_id), Message(role="user", content=query)
        found, warnings = self._recall(self._parts.searcher, scope, message, most)
        if head is not None and not self._parts.absorber.blocks:
            found[LOG] = search_log(self._store, head, query, limit)
        merged = [
            recall
            for recall in merge(found)
            if session_id is None
            or not recall.sources
            or any(source[0] == session_id for source in recall.sources)
        ]
        priced = [
            replace(recall, tokens=self._counter.text(recall.text)) for recall in merged[:limit]
        ]
        return priced, warnings

    def _recall(
        self, recaller: FanOut, scope: Scope, message: Message | None, limit: int
    ) -> tuple[dict[str, list[Recall]], list[str]]:
        """What blocks recall, without what comes from sessions that are gone."""
        found, warnings = recaller.recall(scope, message, limit)
        return self._standing(found), warnings

    def _standing(self, found: dict[str, list[Recall]]) -> dict[str, list[Recall]]:
        """What was recalled, without what comes from sessions that are gone."""
        named = {
            source[0] for recalls in found.values() for one in recalls for source in one.sources
        }
        gone = named - self._store.standing(named) if named else named
        return {
            block: [one for one in recalls if not any(source[0] in gone for source in one.sources)]
            for block, recalls in found.items()
        }
