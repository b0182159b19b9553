"""Keeping windows within their share: asks the strategy, checks its answer, moves the head."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from agent_memory.core.budget import SUMMARY_FRAME, Budget
from agent_memory.core.records import Entry, Head, Summary
from agent_memory.core.spending import seconds_left
from agent_memory.core.text import escape
from agent_memory.core.transcript import clip
from agent_memory.core.window import Cut, apply, guarded, passes, snap, turns, visible
from agent_memory.engine.backoff import Backoff
from agent_memory.engine.paging import head_now, read_of
from agent_memory.engine.processing.absorb import without_system
from agent_memory.engine.spending import now_utc
from agent_memory.engine.windows import Windows
from agent_memory.ltm_blocks.base import Resources
from agent_memory.models.usage import Account
from agent_memory.stores.base import SessionStore
from agent_memory.strategies.base import Departure, Limits, Strategy, Window
from agent_memory.strategies.bounded import Bounded

if TYPE_CHECKING:
    from agent_memory.models.llm import LLM

_TRIES = 3
_MODEL = "the model of summaries"
_LEAST_SUMMARY = 8
"""Tokens in which something can be said."""


class Compaction:
    """Applies one strategy to sessions.

    Args:
        store: The log.
        windows: What was read of it.
        strategy: What leaves, and what stands in its place.
        resources: Lent to the strategy.
        max_tokens: The budget of a context.
        recall_tokens: What to leave free for recalls, where the strategy takes the whole budget.
        max_messages: How many messages a window may show; None for any number.
        unaffordable: Whether a spending limit lets no model be asked for a user.
        held: The seqs of a window's entries that are pinned, within so many tokens.
    """

    def __init__(
        self,
        store: SessionStore,
        windows: Windows,
        strategy: Strategy,
        resources: Resources,
        max_tokens: int,
        recall_tokens: int,
        max_messages: int | None = None,
        unaffordable: Callable[[str | None], bool] = lambda user_id: False,
        held: Callable[[Head, Sequence[Entry], int], frozenset[int]] = lambda *_: frozenset(),
    ) -> None:
        self._store = store
        self._windows = windows
        self._strategy = strategy
        self._resources = resources
        self._budget = Budget(
            max_tokens,
            resources.counter.overhead,
            recall_tokens,
            strategy.share,
            strategy.summary_tokens,
        )
        self._turns_limit = self._budget.turns(0)
        limits = strategy.limits.least(Limits(messages=max_messages))
        self._tokens, self._max_messages, self._max_turns = limits
        # whatever they are, so many messages are too many of neither
        self._few = min((n for n in limits[1:] if n is not None), default=math.inf)
        self._backoff = Backoff()
        self._unaffordable = unaffordable
        self._held = held

    def limit(self, head: Head) -> int:
        """Tokens that the turns of the session's window may take."""
        system = head.system_tokens
        most = self._budget.turns(system) if system else self._turns_limit
        return most if self._tokens is None else min(most, self._tokens)

    def _priced(self, head: Head, entries: Sequence[Entry]) -> list[Entry]:
        """Entries with what they take of a window that is cut: a long message is shown in part."""
        most = self._budget.message(head.system_tokens)
        return [replace(one, tokens=most) if one.tokens > most else one for one in entries]

    def overflows(self, head: Head) -> bool:
        """Whether the session's window passes its tokens, its messages or its turns.

        Nothing is read before the head says that there may be too much. A long message counts with
        what of it is shown. Messages of the system and those that no chat shows are among the
        head's, and do not count.
        """
        limit = self.limit(head)
        if head.window_tokens > limit:
            most = self._budget.message(head.system_tokens)
            if sum(min(entry.counted, most) for entry in self._windows.of(head)) > limit:
                return True
        if head.end - head.start + len(head.pinned) <= self._few:
            return False
        return self._passes(visible(self._windows.of(head), was_cut=head.start > 0))

    def _passes(self, shown: Sequence[Entry]) -> bool:
        """Whether what is shown has too many messages or turns."""
        if passes(shown, self._max_messages):
            return True
        return self._max_turns is not None and len(turns(shown)) > self._max_turns

    @property
    def only_cuts(self) -> bool:
        """Whether the strategy puts nothing in place of what leaves.

        Then settling asks no model, and needs no lease: of several who cut at once one wins.
        """
        return type(self._strategy).summarize is Strategy.summarize

    @property
    def is_brief(self) -> bool:
        """Whether it only cuts, and runs nobody else's code to find where."""
        return self.only_cuts and type(self._strategy).cut is Bounded.cut

    def compact(self, head: Head, down_to: int | None = None) -> Head:
        """Cut the window if it passes its limit; the head as it is afterwards.

        Args:
            head: The session's.
            down_to: Cut it to so many tokens, though it passes no limit.
        """
        for _ in range(_TRIES):
            entries = self._windows.of(head) if down_to is not None else []
            is_more = down_to is not None and sum(one.counted for one in entries) > down_to
            if not (is_more or self.overflows(head)):
                return head
            entries = entries or self._windows.of(head)
            if down_to is not None and is_more:
                window, held = self._window(head, entries, min(down_to, self.limit(head)))
                window = replace(window, keep=1.0)
            else:
                window, held = self._window(head, self._priced(head, entries), self.limit(head))
            cut = self._cut(window, was_cut=head.start > 0)
            cut = cut and Cut(cut.start, tuple({*cut.pinned, *(s for s in held if s <= cut.start)}))
            moved = self._moved(head, entries, cut) if cut else None
            if moved is None:
                return head
            stored = self._store.move(moved)
            if stored is not None:
                self._windows.moved(head, stored)
            stored = stored or head_now(self._store, head)
            if stored is None or stored.deleting:
                return head
            head = stored
        return head

    def _window(
        self, head: Head, entries: Sequence[Entry], limit: int
    ) -> tuple[Window, frozenset[int]]:
        """What a strategy may cut, and the seqs of what is pinned, which it does not see."""
        held = self._held(head, entries, limit // 2)
        loose = tuple(one for one in entries if one.seq not in held) if held else tuple(entries)
        limit -= sum(one.counted for one in entries if one.seq in held)
        most = self._max_messages and max(2, self._max_messages - len(held))
        return Window(loose, limit, most, self._max_turns), held

    def refresh_summary(self, head: Head, *, insist: bool = False) -> Head:
        """Have the model write the summary for which a local extract is the fallback, if it can.

        With `insist`, a model that failed a moment ago is asked too.
        """
        summary = head.summary
        if summary is None or summary.redo_after is None:
            return head
        written = self._summarize(head, [], head.start, insist=insist)
        if written is None or written == summary:
            return head
        stored = self._store.move(replace(head, summary=written))
        if stored is not None:
            self._windows.moved(head, stored)
        return stored or head

    def refresh_wait(self, head: Head) -> float | None:
        """Seconds until the model may be asked again for a summary; None where none waits."""
        waits = head.summary is not None and head.summary.redo_after is not None
        if waits and self._unaffordable(head.user_id):
            return seconds_left(now_utc())
        return self._backoff.seconds(_MODEL) if waits and not self._backoff.idle(_MODEL) else None

    def troubles(self, head: Head | None) -> list[str]:
        """What a context of this session should warn of."""
        fallback = head is not None and head.summary and head.summary.redo_after is not None
        if fallback and not self._backoff.idle(_MODEL):
            return ["The summary is a local extract: the model failed, and will be tried again."]
        return []

    def _cut(self, window: Window, *, was_cut: bool) -> Cut | None:
        """The strategy's cut; the usual one where that would leave too much.

        Whatever the strategy says, the newest step stays, and the user message that opened its
        turn.
        """
        cut = self._strategy.cut(window)
        cut = cut and guarded(window.entries, cut)
        kept = apply(window.entries, cut) if cut else window.entries
        fits = window.keep < 1 or sum(entry.counted for entry in kept) <= window.limit
        if fits and not self._passes(visible(kept, was_cut=was_cut or cut is not None)):
            return cut
        return Strategy.cut(self._strategy, window) or cut

    def _moved(self, head: Head, entries: list[Entry], cut: Cut) -> Head | None:
        """The head after a cut; None where the cut would take nothing away."""
        legal = cut.start if cut.start <= head.start else snap(entries, cut.start)
        kept = apply(entries, Cut(legal, cut.pinned))
        start = max(legal, head.start)
        pinned = [entry for entry in kept if entry.seq <= start]
        leaving = [entry for entry in entries if head.start < entry.seq <= start]
        stay = {entry.seq for entry in kept}
        gone = sum(entry.counted for entry in entries if entry.seq not in stay)
        if not gone:
            return None
        total = leaving[-1].total if leaving else head.start_total
        return replace(
            head,
            start=start,
            start_total=total,
            pinned=tuple(entry.seq for entry in pinned),
            pinned_tokens=sum(entry.tokens for entry in pinned),
            summary=head.summary if self.only_cuts else self._summarize(head, leaving, start, gone),
        )

    def _summarize(
        self, head: Head, leaving: list[Entry], upto: int, gone: int = 0, *, insist: bool = False
    ) -> Summary | None:
        """What the strategy puts in place of what left; a model that failed is spared a while.

        A summary is never longer than what it stands for: then it would leave less room.

        Args:
            head: The session's.
            leaving: What leaves.
            upto: The last seq that does.
            gone: Tokens that the window is smaller by; 0 where nothing leaves.
            insist: Whether to ask a model that failed a moment ago.
        """
        before = head.summary.tokens if head.summary is not None else -SUMMARY_FRAME
        most = self._budget.summary
        if gone:
            most = min(most, before + gone - 1)
        if most < _LEAST_SUMMARY:
            return head.summary and replace(head.summary, upto=upto)
        departure = Departure(
            entries=without_system(leaving),
            upto=upto,
            previous=head.summary,
            history=lambda after, to: without_system(
                read_of(self._store, head, after=after, limit=to - after)
            ),
            max_tokens=most,
        )
        asked: list[str] = []

        def models(name: str | None) -> LLM | None:
            if not insist and not self._backoff.ready(_MODEL):
                return None
            if not insist and self._unaffordable(head.user_id):
                return None
            llm = self._resources.models(name)
            asked.extend([llm.model] if llm else [])
            return llm

        account = Account("summary", head.user_id)
        with account.charged():
            written = self._strategy.summarize(departure, replace(self._resources, models=models))
        if account.refusal is not None:  # the model did not fail
            return written and self._clipped(written, most)
        if asked and written and written.redo_after is not None:
            self._backoff.failed(_MODEL)
        elif asked:
            self._backoff.succeeded(_MODEL)
        return written and self._clipped(written, most)

    def _clipped(self, summary: Summary, most: int) -> Summary:
        def count(text: str) -> int:
            return self._resources.counter.text(escape(text))

        if (tokens := count(summary.text)) <= most:
            return summary if summary.tokens == tokens else replace(summary, tokens=tokens)
        text = clip(summary.text, count, most)
        return replace(summary, text=text, tokens=count(text))
