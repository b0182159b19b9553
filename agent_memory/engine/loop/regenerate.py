"""Asking a question again, and putting the new answer in the old one's place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from agent_memory.core.once import digest_of
from agent_memory.core.records import Span
from agent_memory.core.turns import Turn, turn_of
from agent_memory.engine.append import Appender
from agent_memory.engine.edit.edit import Editor
from agent_memory.engine.edit.regenerate import Regeneration
from agent_memory.engine.guard import Guard, scope_of
from agent_memory.engine.recall.contexts import Contexts, Seen, View
from agent_memory.errors import InvalidInput
from agent_memory.models.usage import Account

if TYPE_CHECKING:
    from agent_memory.core.messages import Message
    from agent_memory.core.records import Head


class Regenerate:
    """Another answer to the newest question.

    Args:
        guard: Says whose a session is.
        contexts: Reads sessions and blocks.
        asking: Looks at a session as if its newest question had just been asked.
        editor: Changes logs.
        appender: Makes drafts of messages.
        settle: Sees to what a change leaves to do.
    """

    def __init__(
        self,
        guard: Guard,
        contexts: Contexts,
        asking: Regeneration,
        editor: Editor,
        appender: Appender,
        settle: Callable[[Head], Head],
    ) -> None:
        self._guard = guard
        self._contexts = contexts
        self._asking = asking
        self._editor = editor
        self._appender = appender
        self._settle = settle

    def turn(self, session_id: str, user_id: str | None) -> Turn:
        """See `AgentMemory.regenerate`."""
        self._guard.check_session(session_id, user_id)
        head = self._guard.owned(session_id, user_id)
        asking = self._asking
        question = asking.question(head) if head else None
        if head is None or question is None:
            raise InvalidInput(
                f"Session {session_id!r} has no question to ask again. Ask one first."
            )
        before, entries = asking.before(head, question)
        packer, asked = self._contexts.packer, [question.message]
        window = packer.window(before, entries, asked)
        scope = replace(scope_of(head, user_id, session_id), shown=window.sources)
        with Account("other", scope.user_id).charged() as account:
            found, warnings = self._contexts.recall(scope, question.message)
        found = asking.without(head, question, found)
        warnings += self._contexts.troubles(head)
        seen = Seen(packer, before, entries, asked, question.message, scope, window)
        context = View(seen, found, warnings, usage=account.usage).context()
        part = Span(session_id, question.seq, head.end)
        return turn_of(session_id, user_id, asked, context, part)

    def replace(self, turn: Turn, part: Span, said: Sequence[Message]) -> Head:
        """Put a turn in the place of the answer that it regenerates.

        Raises:
            InvalidInput: The session went on, or was deleted. Nothing was stored.
            SessionOfAnotherUser: The session belongs to another user.
        """
        self._guard.admit(turn.session_id, turn.user_id)
        head = self._guard.owned(turn.session_id, turn.user_id)
        if head is not None and self._is_there(head, part, said):  # a retry
            return head
        drafts = self._appender.drafts(said[1:])
        stored = self._editor.answer(part, said[0], drafts, turn.user_id)
        if stored is None:
            raise InvalidInput(
                f"Session {turn.session_id!r} was deleted while its question was asked again. "
                "Nothing was stored; ask it as a new one."
            )
        return self._settle(stored)

    def _is_there(self, head: Head, part: Span, said: Sequence[Message]) -> bool:
        """Whether a log ends with these messages, from the first of a part on."""
        there = [one for one in self._asking.said(head, part.first - 1) if not one.is_system]
        new = [one for one in said if not one.is_system]
        return digest_of(there) == digest_of(new)
