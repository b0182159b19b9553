"""The prompt log in the store, and counts of how much each prompt repeats the previous prompt."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache, partial
from typing import TYPE_CHECKING, NamedTuple

from agent_memory.core.cache import Cache
from agent_memory.core.context import MemoryContext
from agent_memory.core.messages import Message
from agent_memory.core.packing import Shown
from agent_memory.core.processes import fork_safe_lock
from agent_memory.core.prompt_log import (
    LoggedPrompt,
    Piece,
    StoredContext,
    decode_context,
    name_of,
    pieces,
    same,
    shows,
    text_names,
)
from agent_memory.core.query_text import with_earlier
from agent_memory.core.records import Entry, Head, Lease, Recall, Record, Scope
from agent_memory.core.shapes import user_messages
from agent_memory.core.system_collections import PROMPT_LOG, PROMPT_TEXTS
from agent_memory.core.threads import off_main_thread
from agent_memory.engine.paging import picked_of, still_exists
from agent_memory.engine.stats import PromptStats, RecallStats
from agent_memory.errors import AgentMemoryError
from agent_memory.ltm_blocks.base import record_id
from agent_memory.stores.kernel.coding import to_micros

if TYPE_CHECKING:
    from agent_memory.engine.assembly import Components

_MOST = 1_000
"""Maximum number of sessions for which the pieces of the last context are cached."""


class Prompts:
    """Counts how much the contexts of this process repeat their predecessors. Thread-safe."""

    def __init__(self) -> None:
        self._last: Cache[tuple[str | None, str | None], list[Piece]] = Cache(_MOST)
        self.stats = PromptStats()

    def noted(self, scope: Scope, context: MemoryContext, shown: Shown) -> MemoryContext:
        """Return a context with `cacheable_tokens`: the tokens that repeat the last context."""
        owner = scope.session_id, scope.user_id
        now = pieces(shown, context)
        with self._last.lock:
            before = self._last.get(owner)
            self._last.put(owner, now)
            if before is None:
                return context
            was, repeated = self.stats, same(before, now)
            tokens, reused = was.tokens + context.tokens, was.cacheable_tokens + repeated
            self.stats = PromptStats(was.contexts + 1, tokens, reused)
        return replace(context, cacheable_tokens=repeated)


class Recalls:
    """Counts the queries of this process, and the queries without results. Thread-safe."""

    def __init__(self) -> None:
        self._lock = fork_safe_lock()
        self.stats = RecallStats()

    def note(self, *, hit: bool) -> None:
        with self._lock:
            was = self.stats
            self.stats = RecallStats(was.queries + 1, was.empty + (not hit))


logger = logging.getLogger(__name__)

_MOST_PENDING = 1_000
"""Maximum number of pending contexts. A context is pending until its session belongs to the user
for whom the context was made. Then it is stored."""

_BEGUN = "begun"
"""Metadata key of the time at which a context's session began. The time distinguishes sessions with
the same id."""

RecallNow = Callable[[Message], Sequence[Recall]]
"""Returns the current recalls for a message."""


class _Pending(NamedTuple):
    context: StoredContext
    at: datetime


class PromptLog:
    """The prompt log: stores and reads contexts. Thread-safe."""

    def __init__(self, parts: Components) -> None:
        self._parts, self._store, self.on = parts, parts.store, parts.config.keep_contexts
        self._pending: Cache[tuple[str, str | None], _Pending] = Cache(_MOST_PENDING)

    @off_main_thread
    def keep(
        self, session_id: str, context: StoredContext, user_id: str | None, head: Head | None
    ) -> None:
        """Store a context. It replaces an earlier context of the same turn and tool round.

        A failure is only logged. If the session does not belong to the user yet, the context stays
        pending, because the session may become another user's.
        """
        if head is not None and head.user_id == user_id:
            try:
                self._write(head, context)
            except AgentMemoryError as error:
                logger.warning("a context was not stored: %s", type(error).__name__)
            return
        self._pending.put((session_id, user_id), _Pending(context, datetime.now(UTC)))

    def begun(self, head: Head) -> None:
        """Store a session's pending context after an update, which may have set the session's user.

        A context for another user, or from before a deletion of the session, is not stored.
        """
        if not self._pending:
            return
        owners = (head.user_id, None)
        contexts = [self._pending.drop((head.session_id, owner)) for owner in owners]
        pending = next(filter(None, contexts), None)
        if pending is None or self._parts.deleted.since(replace(head, created_at=pending.at)):
            return
        self.keep(head.session_id, pending.context, head.user_id, head)

    def cut(self, session_id: str, end: int, lease: Lease | None = None) -> None:
        """Delete contexts that depend on messages after a seq, because these messages change."""
        for place in (PROMPT_LOG, PROMPT_TEXTS):
            self._store.delete_records(place.name, session_id=session_id, after=end, lease=lease)
        self._sweep(session_id, lease)

    def expire(self, session_id: str, upto: int) -> None:
        """Delete the contexts of turns that `retention` removed: the turns up to a seq."""
        for record in self._of(session_id):
            if record.first <= upto:
                self._store.delete_records(PROMPT_LOG.name, record_id=record.id)
        self._sweep(session_id)

    def _sweep(self, session_id: str, lease: Lease | None = None) -> None:
        """Delete the texts that no context of a session has."""
        texts = self._store.records(PROMPT_TEXTS.name, Scope(None, session_id).owner)
        # the texts are read first: a context that is being written is stored before its texts
        used = {
            record_id(session_id, record.metadata[_BEGUN], name)
            for record in (self._of(session_id) if texts else ())
            for name in text_names(record.metadata)
        }
        for text in texts:
            if text.id not in used:
                self._store.delete_records(PROMPT_TEXTS.name, record_id=text.id, lease=lease)

    def read(
        self, head: Head, after: int, limit: int | None, recall_now: RecallNow
    ) -> list[LoggedPrompt]:
        """Return the contexts of a session's turns after a seq, oldest first.

        Contexts of an earlier session with the same id are left out. A text that is not stored,
        such as the text of a note, is taken from `recall_now`, if the record is unchanged.
        """
        session_id, begun = head.session_id, to_micros(head.created_at)
        every = [record for record in self._of(session_id) if record.first > after]
        records = [record for record in every if record.metadata[_BEGUN] == begun]
        turns = set(sorted({record.first for record in records})[:limit])
        records = [record for record in records if record.first in turns]
        wanted = {seq for record in records for seq in shows(record.metadata)}
        entries = {entry.seq: entry for entry in picked_of(self._store, head, sorted(wanted))}
        return [self._context(record, head.user_id, entries, recall_now) for record in records]

    def _context(
        self, record: Record, user_id: str | None, entries: dict[int, Entry], recall_now: RecallNow
    ) -> LoggedPrompt:
        session_id, fields = record.session_id, record.metadata

        @cache
        def now() -> dict[str, str]:
            question = Message(role="user", content=record.text)
            seqs = sorted(entries.keys() & shows(fields), reverse=True)
            shown = user_messages(entries[seq].message for seq in seqs)
            recalls = recall_now(with_earlier(question, shown))
            return {name_of(recall): recall.text for recall in recalls}

        def text_of(name: str) -> str | None:
            place = record_id(session_id, fields[_BEGUN], name)
            stored = self._store.record(PROMPT_TEXTS.name, place)
            if stored is None:
                return now().get(name)
            home = stored.session_id  # its deletion may have begun
            return stored.text if home == session_id or self._store.existing([home]) else None

        source_text = partial(self._source_text, record.created_at, user_id)
        return decode_context(record, entries, text_of, source_text)

    def _source_text(self, at: datetime, user_id: str | None, recall: Recall) -> str:
        """Return the text of a recall's source message, or "".

        A session that began after `at` is another session with the same id, perhaps of another
        user. Its text is not returned.
        """
        for session_id, seq in recall.sources[:1]:
            head = self._store.head(session_id)
            if head and not head.deleting and head.user_id == user_id and head.created_at <= at:
                entries = picked_of(self._store, head, [seq])
                return "".join(entry.message.text() for entry in entries)
        return ""

    def _of(self, session_id: str) -> list[Record]:
        records = self._store.records(PROMPT_LOG.name, Scope(None, session_id).owner)
        return sorted(records, key=lambda record: (record.first, record.created_at))

    def _write(self, head: Head, context: StoredContext) -> None:
        session_id, begun = head.session_id, to_micros(head.created_at)
        now, owner = datetime.now(UTC), Scope(None, session_id).owner
        name = record_id("sent", session_id, begun, context.turn, context.step)
        fields = {**context.fields, _BEGUN: begun}
        turn, upto, question = context.turn, context.upto, context.question
        record = Record(name, owner, session_id, turn, upto, question, (), now, fields)
        texts = []
        for name_, shown in context.texts.items():
            home, upto = shown.session_id or session_id, shown.upto
            # the id contains the context's session, so only its session finds the text
            place = record_id(session_id, begun, name_)
            texts.append(Record(place, owner, home, upto, upto, shown.text, (), now))
        self._store.put_records(PROMPT_LOG.name, [record])
        self._store.put_records(PROMPT_TEXTS.name, texts)
        homes = {text.session_id for text in texts} | {session_id}
        gone = homes - self._store.existing(homes)  # sessions that were deleted meanwhile
        for home in gone:
            self.cut(home, 0)
        if session_id not in gone and not still_exists(self._store, head):  # its id was reused
            for block, some in ((PROMPT_LOG, [record]), (PROMPT_TEXTS, texts)):
                for written in some:
                    self._store.delete_records(block.name, record_id=written.id)
