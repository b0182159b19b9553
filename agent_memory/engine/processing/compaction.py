"""Compaction: cuts windows that exceed their limits, as the strategy decides.

`Retention` removes the oldest messages of a log, once nothing reads them.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

from agent_memory.core.budget import SUMMARY_FRAME, Budget
from agent_memory.core.cache import Cache
from agent_memory.core.text import escape
from agent_memory.core.timestamps import now_utc
from agent_memory.core.usage import seconds_left
from agent_memory.core.window import Cut, apply, guarded, passes, snap, turns, visible
from agent_memory.engine.later import load_rest
from agent_memory.engine.paging import entries_of, head_now, range_of
from agent_memory.engine.processing.absorb import without_system
from agent_memory.engine.recall.runner import Backoff
from agent_memory.errors import ModelError, ModelOutputInvalid
from agent_memory.models.usage import Account
from agent_memory.stores.kernel.log import entry_for_caller
from agent_memory.strategies.base import Departure, Limits, Strategy, Window
from agent_memory.strategies.bounded import Bounded, ClearTools

if TYPE_CHECKING:
    from agent_memory.core.clearing import Cleared
    from agent_memory.core.records import DeadLetter, Entry, Head, Summary
    from agent_memory.engine.assembly import Components
    from agent_memory.models.llm import LLM

_TRIES = 3
_MODEL = "the model of summaries"
_LEAST_SUMMARY = 8
"""The minimum number of tokens of a useful summary."""


class Compaction:
    def __init__(self, parts: Components) -> None:
        config, strategy = parts.config, parts.config.strategy
        self._parts, self._store, self._windows = parts, parts.store, parts.windows
        self._strategy, self._resources = strategy, parts.resources
        self._budget = Budget(
            config.max_tokens,
            parts.resources.counter.overhead,
            config.recall_tokens if parts.blocks else 0,
            strategy.share,
            strategy.summary_tokens,
        )
        self._turns_limit = self._budget.turns(0)
        limits = strategy.limits.least(Limits(messages=config.max_messages))
        self._tokens, self._max_messages, self._max_turns = limits
        # a window with at most this number of messages exceeds neither limit of messages or turns
        self._few = min((n for n in limits[1:] if n is not None), default=math.inf)
        self._backoff = Backoff()
        # the last error of each session, separate because an error may quote the user's data
        self._why: Cache[str, str] = Cache(1_000)
        self._unaffordable = parts.services.spending.unaffordable
        self._cleared: Cache[tuple[object, ...], Cleared] = Cache(64)

    def limit(self, head: Head) -> int:
        """Return the tokens that the turns of the session's window may take."""
        system = head.system_tokens
        most = self._budget.turns(system) if system else self._turns_limit
        return most if self._tokens is None else min(most, self._tokens)

    def cleared(self, head: Head, entries: Sequence[Entry]) -> list[Entry]:
        """Return the session's window with stubs in place of old tool results."""
        clearing, limit = self._strategy.clearing, self.limit(head)
        if clearing is None or head.window_tokens <= limit:
            return list(entries)
        key = (head.session_id, limit)
        pinned = self._parts.pins.held(head, entries, limit // 2)
        before = self._cleared.find(key)
        shown = clearing.clear(entries, limit, self._resources.counter, pinned, before)
        return self._cleared.put(key, shown).entries

    def _shown(self, head: Head, entries: Sequence[Entry]) -> list[Entry]:
        """Return the window with stubs. Long messages have the tokens of their shortened forms."""
        most = self._budget.message(head.system_tokens)
        shown = self.cleared(head, entries)
        return [replace(entry, tokens=most) if entry.tokens > most else entry for entry in shown]

    def overflows(self, head: Head) -> bool:
        """Return whether the session's window exceeds its tokens, its messages or its turns.

        Entries are read only if the counts in the head exceed a limit. A long message counts with
        the tokens of its shortened form. Messages that contexts do not show do not count.
        """
        limit = self.limit(head)
        is_long = head.window_tokens > limit
        are_many = head.end - head.start + len(head.pinned) > self._few
        if not (is_long or are_many):
            return False
        load_rest()
        if is_long:
            shown = self._shown(head, self._windows.of(head))
            if sum(entry.counted for entry in shown) > limit:
                return True
        return are_many and self._passes(visible(self._windows.of(head), was_cut=head.start > 0))

    def _passes(self, shown: Sequence[Entry]) -> bool:
        return passes(shown, self._max_messages) or (
            self._max_turns is not None and len(turns(shown)) > self._max_turns
        )

    @property
    def only_cuts(self) -> bool:
        """Whether the strategy only cuts the window and writes no summary.

        Such a strategy calls no model, and needs no lease: each cut checks the head's version, so
        only one of several concurrent cuts is stored.
        """
        parts = self._strategy.parts
        return all(type(part).summarize is Strategy.summarize for part in parts)

    @property
    def is_brief(self) -> bool:
        """Whether the strategy only cuts, without custom code."""
        own = (Bounded.cut, ClearTools.cut)
        return self.only_cuts and all(type(part).cut in own for part in self._strategy.parts)

    def compact(self, head: Head, down_to: int | None = None) -> Head:
        """Cut the window if it exceeds its limit or `down_to` tokens. Return the new head."""
        for _ in range(_TRIES):
            is_over = self.overflows(head)
            if not is_over and down_to is None:
                return head  # usual: no entry is read
            entries, limit = self._windows.of(head), self.limit(head)
            if down_to is not None and sum(entry.counted for entry in entries) > down_to:
                window, held = self._window(head, entries, min(down_to, limit))
                window = replace(window, keep=1.0)
            elif is_over:
                window, held = self._window(head, self._shown(head, entries), limit)
            else:
                return head
            cut = self._cut(window, was_cut=head.start > 0)
            cut = cut and Cut(cut.start, tuple({*cut.pinned, *(s for s in held if s <= cut.start)}))
            moved = self._moved(head, entries, cut, window) if cut else None
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
        """Return the window that a strategy may cut, and the seqs of the pinned entries in it."""
        held = self._parts.pins.held(head, entries, limit // 2)
        loose = tuple(entry_for_caller(entry) for entry in entries if entry.seq not in held)
        limit -= sum(entry.counted for entry in entries if entry.seq in held)
        most = self._max_messages and max(2, self._max_messages - len(held))
        return Window(loose, limit, most, self._max_turns), held

    def refresh_summary(self, head: Head, *, insist: bool = False) -> Head:
        """Let a model replace a local extract by a summary. `insist` ignores recent failures.

        A local extract consists of sentences copied from the messages, without a model.
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
        """Return the seconds until a pending summary may be retried. None if there is no wait."""
        waits = head.summary is not None and head.summary.redo_after is not None
        if waits and self._unaffordable(head.user_id):
            return seconds_left(now_utc())
        if not waits or not self._has_failed(head):
            return None
        return self._backoff.seconds(_MODEL, (_MODEL, head.session_id))

    def _has_failed(self, head: Head) -> bool:
        """Return whether the model has failed since it last wrote a summary."""
        names = (_MODEL, (_MODEL, head.session_id))
        return not all(map(self._backoff.idle, names))

    def warnings(self, head: Head | None) -> list[str]:
        """Return warnings about the session's summary."""
        if head is None or self.only_cuts:
            return []
        warnings: list[str] = []
        covered = head.expired if head.summary is None else head.summary.upto
        if covered < head.start and self._strategy.summary_tokens:
            warnings.append(
                f"No summary covers the messages {covered + 1} to {head.start} that left the "
                "window. The next cut adds them, if max_tokens and max_summary_tokens leave room."
            )
        is_extract = head.summary is not None and head.summary.redo_after is not None
        if is_extract and self._has_failed(head):
            why = self._why.find(head.session_id)
            failed = (
                "The summary is a local extract (sentences copied from the messages), because the "
                "model failed. The model will be tried again."
            )
            warnings.append(f"{failed} {why}" if why else failed)
        return warnings

    def _cut(self, window: Window, *, was_cut: bool) -> Cut | None:
        """Return the strategy's cut, or the default cut if the strategy's cut leaves too much.

        The newest message always stays, with its tool calls and results and its turn's question.
        """
        cut = self._strategy.cut(window)
        cut = cut and guarded(window.entries, cut)
        remaining = apply(window.entries, cut) if cut else window.entries
        fits = window.keep < 1 or sum(entry.counted for entry in remaining) <= window.limit
        if fits and not self._passes(visible(remaining, was_cut=was_cut or cut is not None)):
            return cut
        return Strategy.cut(self._strategy, window) or cut

    def _moved(self, head: Head, entries: list[Entry], cut: Cut, window: Window) -> Head | None:
        """Return the head after a cut of the window. None if the cut removes nothing."""
        legal = cut.start if cut.start <= head.start else snap(entries, cut.start)
        remaining = apply(entries, Cut(legal, cut.pinned))
        start = max(legal, head.start)
        pinned = [entry for entry in remaining if entry.seq <= start]
        leaving = [entry for entry in entries if head.start < entry.seq <= start]
        stay = {entry.seq for entry in remaining}
        gone = sum(entry.counted for entry in entries if entry.seq not in stay)
        if not gone:
            return None
        total = leaving[-1].total if leaving else head.start_total
        left = sum(entry.counted for entry in window.entries if entry.seq in stay)
        room = max(sum(each.counted for each in window.entries) - left - 1, window.limit - left, 1)
        return replace(
            head,
            start=start,
            start_total=total,
            pinned=tuple(entry.seq for entry in pinned),
            pinned_tokens=sum(entry.tokens for entry in pinned),
            summary=head.summary if self.only_cuts else self._summarize(head, leaving, start, room),
        )

    def _left(self, head: Head, after: int, upto: int) -> list[Entry]:
        """Return the entries that a summary may cover, after the seq `after` up to `upto`."""
        entries = range_of(self._store, head, after, upto)
        return without_system([entry for entry in entries if entry.seq not in head.pinned])

    def _summarize(
        self, head: Head, leaving: list[Entry], upto: int, spare: int = 0, *, insist: bool = False
    ) -> Summary | None:
        """Return the strategy's summary of the messages that left the window.

        The summary may have `spare` tokens more than the previous summary. If `spare` is 0, only
        the budget limits the summary. A model that failed recently is called only with `insist`.
        """
        before = head.summary.tokens if head.summary is not None else -SUMMARY_FRAME
        most = self._budget.summary
        if spare:
            most = min(most, before + spare)
        if most < _LEAST_SUMMARY:
            return head.summary  # contexts have a warning about the uncovered messages
        covered = head.expired if head.summary is None else head.summary.upto
        leaving = [*range_of(self._store, head, covered, head.start), *leaving]
        failures: list[ModelError] = []
        departure = Departure(
            entries=without_system(leaving),
            upto=upto,
            previous=head.summary,
            history=partial(self._left, head),
            max_tokens=most,
            failed=failures.append,
        )
        called: list[str] = []
        own = (_MODEL, head.session_id)

        def models(name: str | None) -> LLM | None:
            if not insist and not self._backoff.ready(_MODEL, own):
                return None
            if not insist and self._unaffordable(head.user_id):
                return None
            llm = self._resources.models(name)
            called.extend([llm.model] if llm else [])
            return llm

        account = Account("summary", head.user_id)
        with account.charged():
            written = self._strategy.summarize(departure, replace(self._resources, models=models))
        # a reached limit does not count as a failure of the model, but an unknown price does
        if account.refusal is not None and self._unaffordable(head.user_id):
            return written and self._clipped(written, most)
        if called and written and written.redo_after is not None:
            # an invalid answer concerns one session only
            is_own = any(isinstance(error, ModelOutputInvalid) for error in failures)
            self._backoff.failed(own if is_own else _MODEL)
            self._why.put(head.session_id, str(failures[-1]) if failures else "")
        elif called:
            self._backoff.succeeded(_MODEL, own)
            self._why.put(head.session_id, "")
        return written and self._clipped(written, most)

    def _clipped(self, summary: Summary, most: int) -> Summary:
        def count(text: str) -> int:
            return self._resources.counter.text(escape(text))

        if (tokens := count(summary.text)) <= most:
            return summary if summary.tokens == tokens else replace(summary, tokens=tokens)
        from agent_memory.core.transcript import clip

        text = clip(summary.text, count, most)
        return replace(summary, text=text, tokens=count(text))


def safe_to_expire(head: Head, blocks: Collection[str], dead: Iterable[DeadLetter]) -> int:
    """Return the last seq up to which nothing reads a session's log any more.

    The log is read by the window, by a summary that a model must redo, by dead letters, and by each
    block from its cursor on, even if the block is not configured now. The entry at a cursor stays,
    because its running total is needed to count the tokens after it. The newest entry stays,
    because stores read the end of the log from this entry.
    """
    summary = head.summary
    readers = [head.start, head.end - 1]
    readers += [seq - 1 for seq in head.pinned]
    readers += [summary.redo_after] if summary and summary.redo_after is not None else []
    readers += [head.cursors.get(name, 0) - 1 for name in {*blocks, *head.cursors}]
    readers += [letter.first - 1 for letter in dead]
    return max(head.expired, min(readers))


class Retention:
    def __init__(self, parts: Components) -> None:
        self._parts, self._store, self._blocks = parts, parts.store, parts.absorber.blocks
        self._retention = parts.config.retention

    @property
    def seconds(self) -> float | None:
        """The minimum age of removed messages. None if the retention is not a time."""
        return self._retention.total_seconds() if isinstance(self._retention, timedelta) else None

    @property
    def job(self) -> str | None:
        """The name of this job for `Housekeeping`. None if logs are kept forever."""
        return None if self._retention == "forever" else f"_retention {self._retention}"

    def shorten(self, head: Head) -> Head:
        """Remove the messages that the retention does not keep. Return the new head."""
        upto = self._upto(head)
        if isinstance(self._retention, timedelta):
            upto = self._old(head, upto, datetime.now(UTC) - self._retention)
        if upto <= head.expired:
            return head
        moved = self._store.move(replace(head, expired=upto))
        if moved is None:  # another writer was faster: the next call removes them
            return head
        self._parts.windows.moved(head, moved)
        self._parts.prompt_log.expire(head.session_id, upto)
        return moved

    def removes(self, head: Head) -> bool:
        """Return whether there are messages to remove, now or when they are old enough."""
        return self._upto(head) > head.expired

    def wait(self, head: Head) -> float | None:
        """Return the seconds until messages must be removed. None if none will be removed."""
        if not isinstance(self._retention, timedelta) or self._upto(head) <= head.expired:
            return None
        oldest = self._store.read(head.session_id, after=head.expired, limit=1)
        if not oldest:
            return None
        age = datetime.now(UTC) - oldest[0].created_at
        return max(0.0, (self._retention - age).total_seconds())

    def _upto(self, head: Head) -> int:
        if self._retention == "forever" or head.start <= head.expired:
            return head.expired
        letters = self._parts.dead_letters
        dead = [each for name in self._blocks for each in letters.dead(name, head.session_id)]
        return safe_to_expire(head, self._blocks, dead)

    def _old(self, head: Head, upto: int, before: datetime) -> int:
        """Return the last seq, at most `upto`, of the entries that are old enough."""
        old = head.expired
        for entry in entries_of(self._store, head):
            if entry.seq > upto or entry.created_at >= before:
                break
            old = entry.seq
        return old
