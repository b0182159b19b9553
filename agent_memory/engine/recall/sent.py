"""`SentContexts`: what models were sent, kept for as long as what it was made of."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import NamedTuple

from agent_memory.core.processes import fork_safe_lock
from agent_memory.core.records import Entry, Head, Lease, Recall, Record, Scope
from agent_memory.core.reserved import SENT, SENT_TEXTS, WORDS, Reserved
from agent_memory.core.sent import Kept, SentContext, name_of, sent_of, shows
from agent_memory.engine.paging import is_there, picked_of
from agent_memory.errors import AgentMemoryError
from agent_memory.ltm_blocks.base import record_id
from agent_memory.stores.base import Store
from agent_memory.stores.coding import to_micros

logger = logging.getLogger(__name__)

_WAITING = 1_000
"""Contexts of sessions that have not begun yet, or are nobody's, the latest: each is kept once its
session is its user's."""

_BEGUN = "begun"
"""When the session began that a context was made for: its id may be another one's by now."""

Again = Callable[[str], Sequence[Recall]]
"""Recalls for a question as of now."""


class _Waiting(NamedTuple):
    kept: Kept
    at: datetime


class SentContexts:
    """Keeps contexts, and tells them. Safe to share.

    Args:
        store: Where they are kept, and the log.
        deleted_since: When a session, or its user, was deleted after it began.
        on: Whether new ones are kept.
    """

    def __init__(
        self, store: Store, deleted_since: Callable[[Head], datetime | None], *, on: bool
    ) -> None:
        self._store, self._deleted_since, self.on = store, deleted_since, on
        self._lock = fork_safe_lock()
        self._waiting: OrderedDict[tuple[str, str | None], _Waiting] = OrderedDict()

    def keep(self, session_id: str, kept: Kept, user_id: str | None, head: Head | None) -> None:
        """Keep a context, over the one of the same turn so far. What fails is logged: the context
        is sent all the same.

        Args:
            session_id: The conversation.
            kept: What to keep.
            user_id: Whose memory is in it.
            head: The session that it was made for; None where it has not begun. In one that is not
                that user's it waits for becoming theirs: it may become another's.
        """
        if head is not None and head.user_id == user_id:
            try:
                self._write(head, kept)
            except AgentMemoryError as error:
                logger.warning("a context was not kept: %s", type(error).__name__)
            return
        whose = session_id, user_id
        with self._lock:
            self._waiting[whose] = _Waiting(kept, datetime.now(UTC))
            self._waiting.move_to_end(whose)
            while len(self._waiting) > _WAITING:
                self._waiting.popitem(last=False)

    def begun(self, head: Head) -> None:
        """A session may have begun, or become somebody's: keep what was sent for it before, unless
        that was another user's, or was deleted since.
        """
        if not self._waiting:
            return
        with self._lock:
            whose = (head.user_id, None)
            found = [self._waiting.pop((head.session_id, one), None) for one in whose]
        waiting = next(filter(None, found), None)
        if waiting is None or self._deleted_since(replace(head, created_at=waiting.at)):
            return
        self.keep(head.session_id, waiting.kept, head.user_id, head)

    def cut(self, session_id: str, end: int, lease: Lease | None = None) -> None:
        """Forget what depends on messages of a session after a seq: they are changed, or gone."""
        for place in (SENT, SENT_TEXTS, WORDS):
            self._store.delete_records(place.name, session_id=session_id, after=end, lease=lease)

    def expire(self, session_id: str, upto: int) -> None:
        """Forget the contexts and the words of turns up to a seq: the log has them no longer."""
        for place in (SENT, WORDS):
            for one in self._of(session_id, place):
                if one.first <= upto:
                    self._store.delete_records(place.name, record_id=one.id)

    def read(self, head: Head, after: int, limit: int | None, again: Again) -> list[SentContext]:
        """The contexts of a session's turns after a seq, oldest first.

        Args:
            head: The session. What was made for one that had its id before is not told.
            after: Only of turns that begin after this seq.
            limit: Of at most so many turns.
            again: Recalls anew for a question: so what was kept outright is told, if it says the
                same as then.
        """
        session_id, begun = head.session_id, to_micros(head.created_at)
        every = [one for one in self._of(session_id) if one.first > after]
        records = [one for one in every if one.metadata.get(_BEGUN, begun) == begun]
        turns = set(sorted({one.first for one in records})[:limit])
        records = [one for one in records if one.first in turns]
        wanted = {seq for one in records for seq in shows(one.metadata)}
        entries = {one.seq: one for one in picked_of(self._store, head, sorted(wanted))}
        return [self._told(one, head.user_id, entries, again) for one in records]

    def _told(
        self, record: Record, user_id: str | None, entries: dict[int, Entry], again: Again
    ) -> SentContext:
        now: dict[str, str] | None = None
        fields = record.metadata

        def text_of(name: str) -> str | None:
            nonlocal now
            place = _place(record.session_id, fields.get(_BEGUN), name)
            kept = self._store.record(SENT_TEXTS.name, place)
            if kept is not None:
                return kept.text
            if now is None:
                now = {name_of(one): one.text for one in again(record.text)}
            return now.get(name)

        return sent_of(
            record.session_id,
            record.first,
            record.text,
            record.created_at,
            fields,
            entries,
            text_of,
            lambda recall: self._said(recall, record.created_at, user_id),
        )

    def _said(self, recall: Recall, at: datetime, user_id: str | None) -> str:
        """What was said where something comes from that was found for a user, and kept at a time.
        A session that has begun since is another one, and perhaps another user's."""
        for session_id, seq in recall.sources[:1]:
            head = self._store.head(session_id)
            if head is not None and head.user_id == user_id and head.created_at <= at:
                found = picked_of(self._store, head, [seq])
                return "".join(one.message.text() for one in found)
        return ""

    def _of(self, session_id: str, place: Reserved = SENT) -> list[Record]:
        records = self._store.records(place.name, Scope(None, session_id).owner)
        return sorted(records, key=lambda one: (one.first, one.created_at))

    def _write(self, head: Head, kept: Kept) -> None:
        session_id, begun = head.session_id, to_micros(head.created_at)
        now, owner = datetime.now(UTC), Scope(None, session_id).owner
        name = record_id("sent", session_id, begun, kept.turn, kept.step)
        fields = {**kept.fields, _BEGUN: begun}
        record = Record(
            name, owner, session_id, kept.turn, kept.upto, kept.question, (), now, fields
        )
        texts = []
        for given, one in kept.texts.items():
            home, upto = one.session_id or session_id, one.upto
            # bound to the session that showed it: which one may see it is as for that session
            place = _place(session_id, begun, given)
            texts.append(Record(place, owner, home, upto, upto, one.text, (), now))
        self._store.put_records(SENT_TEXTS.name, texts)
        self._store.put_records(SENT.name, [record])
        homes = {one.session_id for one in texts} | {session_id}
        gone = homes - self._store.existing(homes)  # deleted meanwhile
        for home in gone:
            self.cut(home, 0)
        if session_id not in gone and not is_there(self._store, head):  # another has its id
            for block, some in ((SENT, [record]), (SENT_TEXTS, texts)):
                for written in some:
                    self._store.delete_records(block.name, record_id=written.id)


def _place(session_id: str, begun: int | None, name: str) -> str:
    """Where a text is kept; `begun` is None where a release wrote that did not tell."""
    return record_id(session_id, name) if begun is None else record_id(session_id, begun, name)
