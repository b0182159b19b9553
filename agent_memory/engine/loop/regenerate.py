"""Regeneration: answer a question again, and replace the old answer with the new one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from agent_memory.core.idempotency import digest_of
from agent_memory.core.records import Span
from agent_memory.core.shapes import role_of
from agent_memory.core.turns import Turn, turn_of
from agent_memory.engine.edit.plans import window_before
from agent_memory.engine.guard import scope_of
from agent_memory.engine.paging import range_of
from agent_memory.engine.recall.contexts import LoadedSession
from agent_memory.errors import InvalidInput

if TYPE_CHECKING:
    from agent_memory.core.messages import Message
    from agent_memory.core.records import Entry, Head, Recall
    from agent_memory.engine.assembly import Components

_PAGE = 64


class Regenerate:
    """Replaces the answer to the newest question. `settle` does the work that follows an edit."""

    def __init__(self, parts: Components, settle: Callable[[Head], Head]) -> None:
        self._parts, self._store, self._settle = parts, parts.store, settle

    def turn(self, session_id: str, user_id: str | None) -> Turn:
        head = self._parts.guard.owned(session_id, user_id)
        question = self._question(head) if head else None
        if head is None or question is None:
            raise InvalidInput(
                f"Session {session_id!r} has no question to ask again. Ask one first."
            )
        before, entries = self._before(head, question)
        packer, messages = self._parts.contexts.packer, [question.message]
        window = packer.window(before, entries, messages)
        scope = replace(scope_of(head, user_id, session_id), shown=window.sources)
        session = LoadedSession(packer, before, entries, messages, question.message, scope, window)
        view = self._parts.contexts.view(session)
        view = view._replace(recalls=self._without(head, question, view.recalls))
        context = self._parts.contexts.sending(session_id, view)(messages)
        part = Span(session_id, question.seq, head.end)
        return turn_of(session_id, user_id, messages, context, part)

    def replace(self, turn: Turn, part: Span, messages: Sequence[Message]) -> Head:
        """Replace a turn's answer. Raise `InvalidInput` if the session has other messages now."""
        head = self._parts.guard.owned(turn.session_id, turn.user_id)
        if head is not None and self._is_there(head, part, messages):  # the call is a retry
            return head
        drafts = self._parts.appender.drafts(messages[1:], turn.session_id, turn.user_id)
        stored = self._parts.editor.answer(part, messages[0], drafts, turn.user_id)
        if stored is None:
            raise InvalidInput(
                f"Session {turn.session_id!r} was deleted since the call of regenerate(). "
                "Nothing was stored; ask the question as a new one."
            )
        return self._settle(stored)

    def _is_there(self, head: Head, part: Span, messages: Sequence[Message]) -> bool:
        """Return whether the log has exactly these messages from the start of `part` on."""
        log = range_of(self._store, head, part.first - 1, head.end)
        stored = [entry.message for entry in log if not entry.message.is_system]
        new = [message for message in messages if not message.is_system]
        return digest_of(stored) == digest_of(new)

    def _question(self, head: Head) -> Entry | None:
        end = head.end
        while end > head.expired:
            after = max(head.expired, end - _PAGE)
            for entry in reversed(range_of(self._store, head, after, end)):
                if role_of(entry.message) == "user":
                    return entry
            end = after
        return None

    def _before(self, head: Head, question: Entry) -> tuple[Head, list[Entry]]:
        """Return the head and the window as they were before the question."""
        end = question.seq - 1
        if head.start <= end:
            shown = [entry for entry in self._parts.windows.of(head) if entry.seq <= end]
        else:  # the question has left the window
            head = window_before(head, end, partial(range_of, self._store, head))
            shown = range_of(self._store, head, head.start, end)
        return replace(head, end=end, total=question.total - question.tokens), shown

    def _without(
        self, head: Head, question: Entry, by_block: Mapping[str, Sequence[Recall]]
    ) -> dict[str, list[Recall]]:
        """Drop the recalls that derive from the question or from later messages of the session.

        If a record derives from messages before and after the question, its recalls are dropped
        too.
        """
        remaining: dict[str, list[Recall]] = {}
        for block, recalls in by_block.items():
            last = min(self._parts.editor.reach(block, head, question.seq), question.seq - 1)
            remaining[block] = [
                recall
                for recall in recalls
                if not any(name == head.session_id and seq > last for name, seq in recall.sources)
            ]
        return remaining
