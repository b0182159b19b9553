"""What is counted of contexts: how much of each is the same as in the one before, for each session,
and how often nothing was found."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace

from agent_memory.core.context import MemoryContext
from agent_memory.core.packing import Shown
from agent_memory.core.prefix import Piece, pieces, same
from agent_memory.core.processes import fork_safe_lock
from agent_memory.core.records import Scope
from agent_memory.engine.stats import PromptStats, RecallStats

_MOST = 1_000
"""Sessions whose last context is known, the latest."""


class Prompts:
    """What contexts of this process were, and how much of each was kept. Safe to share."""

    def __init__(self) -> None:
        self._lock = fork_safe_lock()
        self._last: OrderedDict[tuple[str | None, str | None], list[Piece]] = OrderedDict()
        self._stats = PromptStats()

    def noted(self, scope: Scope, context: MemoryContext, shown: Shown) -> MemoryContext:
        """A context, with what of it is the same as in the last one of its session and user."""
        whose = scope.session_id, scope.user_id
        now = pieces(
            list(zip(shown.leading, shown.leading_tokens, strict=True)),
            [*shown.turns, *shown.drafts],
            context.recalls,
            context.tokens - shown.tokens,
            leads=context.memory_role == "leading",
        )
        with self._lock:
            before = self._last.pop(whose, None)
            self._last[whose] = now
            while len(self._last) > _MOST:
                self._last.popitem(last=False)
            if before is None:
                return context
            kept = same(before, now)
            was = self._stats
            self._stats = PromptStats(
                was.contexts + 1, was.tokens + context.tokens, was.kept_tokens + kept
            )
        return replace(context, kept_tokens=kept)

    def snapshot(self) -> PromptStats:
        """The totals now."""
        with self._lock:
            return self._stats


class Recalls:
    """How often something was looked for in this process. Safe to share."""

    def __init__(self) -> None:
        self._lock = fork_safe_lock()
        self._stats = RecallStats()

    def note(self, *, found: bool) -> None:
        """Something was looked for."""
        with self._lock:
            was = self._stats
            self._stats = RecallStats(was.asked + 1, was.empty + (not found))

    def snapshot(self) -> RecallStats:
        """The totals now."""
        return self._stats
