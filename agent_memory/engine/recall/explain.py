"""Explanations: the records that a question recalls, and why other records are left out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from uuid import uuid4

from agent_memory.core.context import Explanation, dropped_of
from agent_memory.core.messages import Message
from agent_memory.core.query_text import query_message
from agent_memory.core.records import DeadLetter, Scope
from agent_memory.core.threads import apart
from agent_memory.engine.paging import all_heads
from agent_memory.engine.recall.contexts import View
from agent_memory.engine.recall.fan_out import concerns
from agent_memory.errors import SessionOfAnotherUser

if TYPE_CHECKING:
    from agent_memory.engine.assembly import Components

_MOST = 10
_OF_NOBODY = (
    "The session {!r} belongs to no user yet. Other sessions therefore do not recall its "
    "messages. Name the user: update(..., user_id=...)."
)


class Explainer:
    """Runs the steps of `get` and collects the records that are left out."""

    def __init__(self, parts: Components) -> None:
        self._parts, self._contexts = parts, parts.contexts

    @apart
    def run(self, question: str, user_id: str | None, session_id: str | None) -> Explanation:
        contexts, notes = self._contexts, []
        message, new = Message(role="user", content=question), uuid4().hex
        session_id = session_id or new
        try:
            session = contexts.see(session_id, [message], user_id, once=True)
        except SessionOfAnotherUser as error:
            notes.append(f"{error} Nothing of that session is recalled for this user.")
            session_id = new
            session = contexts.see(session_id, [message], user_id, once=True)
        head, scope = session.head, session.scope
        if head is not None and head.user_id is None and user_id is not None:
            notes.append(_OF_NOBODY.format(session_id))
        by_block, warnings = contexts.recall(scope, message)
        view = View(session, by_block, [])
        context = view.context()
        left_out = [
            *view.left_out(context, session.window),
        ]
        passed_over = query_message(message)
        for block in self._contexts.blocks:
            if concerns(block, scope):
                left_out += block.left_out(scope, passed_over, _MOST)
        warnings += [*notes, *self._parts.troubles(head), *contexts.waiting(scope, head)]
        dropped = dropped_of(head, session.entries, session.window.sources, context.recalls)
        return Explanation(question, context, left_out, dropped, self._dead(scope), warnings)

    def _dead(self, scope: Scope) -> list[DeadLetter]:
        letters = [
            letter
            for block in self._contexts.blocks
            if block.absorbs
            for letter in self._parts.dead_letters.dead(block.name)
        ]
        sessions = self._sessions(scope) if letters else ()
        return [letter for letter in letters if letter.session_id in sessions]

    def _sessions(self, scope: Scope) -> Sequence[str]:
        if scope.user_id is None:
            return [scope.session_id or ""]
        return [head.session_id for head in all_heads(self._parts.store, scope.user_id)]
