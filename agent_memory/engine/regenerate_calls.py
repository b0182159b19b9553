"""The call of `AgentMemory` that asks a question again, and puts the new answer in its place."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from agent_memory.core.fusion import merge
from agent_memory.core.records import Span
from agent_memory.core.turns import Turn, fitted
from agent_memory.engine.calls import scope_of
from agent_memory.engine.edit.regenerate import Regeneration
from agent_memory.engine.turn_calls import TurnCalls
from agent_memory.errors import InvalidInput

if TYPE_CHECKING:
    from agent_memory.core.messages import Message
    from agent_memory.core.records import Draft, Head, Recall, Scope
    from agent_memory.engine.recall.fan_out import FanOut


class RegenerateCalls(TurnCalls):
    """Another answer to the newest question."""

    def regenerate(self, session_id: str, *, user_id: str | None = None) -> Turn:
        """What to send a model for another answer to the session's newest question. Stores nothing.

        The context is that of before the question: the answer that it has by now, the calls of
        tools between them, and what blocks derived from these are not in it. Give the new answer to
        `after_turn`, which puts it in the old one's place, in one step; until then the old one
        stays. A question that has no answer yet is simply asked.

        Args:
            session_id: The conversation.
            user_id: The user.

        Returns:
            The turn, as `before_turn` gives it.

        Raises:
            InvalidInput: The session has no message of a user.
            MessageTooLarge: The question alone with the system message does not fit.
            SessionOfAnotherUser: The session belongs to another user.
            StoreError: The session store failed.
        """
        self._check(session_id, user_id)
        head = self._owned(session_id, user_id)
        asking = self._asking
        question = asking.question(head) if head else None
        if head is None or question is None:
            raise InvalidInput(
                f"Session {session_id!r} has no question to ask again. Ask one first."
            )
        before, entries = asking.before(head, question)
        packer, asked = self._parts.packer, [question.message]
        window = packer.window(before, entries)
        scope = scope_of(head, user_id, session_id)
        found, warnings = self._recall(
            self._parts.recaller, scope, question.message, packer.candidates
        )
        shown = {(entry.session_id, entry.seq) for entry in window.turns}
        recalls = merge(asking.without(head, question, found), shown)
        warnings += self._troubles(head)
        context = packer.pack(before, window, recalls, warnings, question.message.text())
        messages = fitted(context, asked, self._counter)
        part = Span(session_id, question.seq, head.end)
        return Turn(session_id, user_id, asked, context, messages, part)

    def _replaced(self, turn: Turn, part: Span, said: Sequence[Message]) -> Head:
        self._check(turn.session_id, turn.user_id)
        self._owned(turn.session_id, turn.user_id)
        drafts = self._drafts(turn.session_id, said[1:])
        stored = self._parts.editor.answer(part, said[0], drafts)
        if stored is None:
            raise InvalidInput(
                f"Session {turn.session_id!r} was deleted while its question was asked again. "
                "Nothing was stored; ask it as a new one."
            )
        return self._settle(stored)

    @property
    def _asking(self) -> Regeneration:
        parts = self._parts
        return Regeneration(parts.store, parts.windows, parts.editor)

    @abstractmethod
    def _recall(
        self, recaller: FanOut, scope: Scope, message: Message | None, limit: int
    ) -> tuple[dict[str, list[Recall]], list[str]]:
        """See `SearchCalls`."""

    @abstractmethod
    def _drafts(self, session_id: str, given: Sequence[Any]) -> list[Draft]:
        """See `AgentMemory`."""

    @abstractmethod
    def _settle(self, head: Head) -> Head:
        """See `AgentMemory`."""

    @abstractmethod
    def _troubles(self, head: Head | None) -> list[str]:
        """See `AgentMemory`."""
