"""Asking a question again, and putting the new answer in the old one's place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from agent_memory.core.fusion import merge
from agent_memory.core.records import Span
from agent_memory.core.turns import Turn, fitted
from agent_memory.engine.append import Appender
from agent_memory.engine.edit.edit import Editor
from agent_memory.engine.edit.regenerate import Regeneration
from agent_memory.engine.guard import Guard, scope_of
from agent_memory.engine.recall.contexts import Contexts
from agent_memory.errors import InvalidInput

if TYPE_CHECKING:
    from agent_memory.core.messages import Message
    from agent_memory.core.records import Head
    from agent_memory.core.tokens.counter import TokenCounter


class Regenerate:
    """Another answer to the newest question.

    Args:
        guard: Says whose a session is.
        contexts: Reads sessions and blocks.
        asking: Looks at a session as if its newest question had just been asked.
        editor: Changes logs.
        appender: Makes drafts of messages.
        counter: Counts tokens.
        settle: Sees to what a change leaves to do.
    """

    def __init__(
        self,
        guard: Guard,
        contexts: Contexts,
        asking: Regeneration,
        editor: Editor,
        appender: Appender,
        counter: TokenCounter,
        settle: Callable[[Head], Head],
    ) -> None:
        self._guard = guard
        self._contexts = contexts
        self._asking = asking
        self._editor = editor
        self._appender = appender
        self._counter = counter
        self._settle = settle

    def turn(self, session_id: str, user_id: str | None) -> Turn:
        """See `AgentMemory.regenerate`."""
        self._guard.check(session_id, user_id)
        head = self._guard.owned(session_id, user_id)
        asking = self._asking
        question = asking.question(head) if head else None
        if head is None or question is None:
            raise InvalidInput(
                f"Session {session_id!r} has no question to ask again. Ask one first."
            )
        before, entries = asking.before(head, question)
        packer, asked = self._contexts.packer, [question.message]
        window = packer.window(before, entries, question.message)
        scope = scope_of(head, user_id, session_id)
        found, warnings = self._contexts.recall(scope, question.message)
        shown = {(entry.session_id, entry.seq) for entry in window.turns}
        recalls = merge(asking.without(head, question, found), shown)
        warnings += self._contexts.troubles(head)
        context = packer.pack(before, window, recalls, warnings, question.message.text())
        messages = fitted(context, asked, self._counter)
        part = Span(session_id, question.seq, head.end)
        return Turn(session_id, user_id, asked, context, messages, part)

    def replace(self, turn: Turn, part: Span, said: Sequence[Message]) -> Head:
        """Put a turn in the place of the answer that it regenerates.

        Raises:
            InvalidInput: The session went on, or was deleted. Nothing was stored.
            SessionOfAnotherUser: The session belongs to another user.
        """
        self._guard.admit(turn.session_id, turn.user_id)
        drafts = self._appender.drafts(turn.session_id, said[1:])
        stored = self._editor.answer(part, said[0], drafts)
        if stored is None:
            raise InvalidInput(
                f"Session {turn.session_id!r} was deleted while its question was asked again. "
                "Nothing was stored; ask it as a new one."
            )
        return self._settle(stored)
