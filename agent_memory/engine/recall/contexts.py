"""What a context is made of: a session's window, and what blocks recall for a message."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agent_memory.core.context import MemoryContext, Packer, Shown
from agent_memory.core.fusion import merge
from agent_memory.core.messages import Message
from agent_memory.core.records import Head, Recall, Scope
from agent_memory.core.window import role_of
from agent_memory.engine.guard import Guard, scope_of
from agent_memory.engine.recall.fan_out import FanOut
from agent_memory.engine.windows import Windows
from agent_memory.stores.base import SessionStore

Found = dict[str, list[Recall]]


class Contexts:
    """Reads sessions and blocks, and packs what they give.

    Args:
        guard: Says whose a session is.
        store: The log.
        windows: What was read of it.
        packer: Packs a window and recalls within the budget.
        recaller: Asks the blocks.
        troubles: What to warn of, whatever was recalled; of a session, or without one.

    Attributes:
        packer: As given.
        troubles: As given.
    """

    def __init__(
        self,
        guard: Guard,
        store: SessionStore,
        windows: Windows,
        packer: Packer,
        recaller: FanOut,
        troubles: Callable[[Head | None], list[str]],
    ) -> None:
        self._guard = guard
        self._store = store
        self._windows = windows
        self._recaller = recaller
        self.packer = packer
        self.troubles = troubles

    def get(self, session_id: str, message: Any, user_id: str | None) -> MemoryContext:
        """See `AgentMemory.get`."""
        head, window, query = self.asked(session_id, message, user_id)
        found, warnings = self.recall(scope_of(head, user_id, session_id), query)
        recalls: list[Recall] = []
        if any(found.values()):
            recalls = merge(found, {(entry.session_id, entry.seq) for entry in window.turns})
        warnings += self.troubles(head)
        question = query.text() if query is not None else ""
        return self.packer.pack(head, window, recalls, warnings, question)

    def asked(
        self, session_id: str, message: Any, user_id: str | None
    ) -> tuple[Head | None, Shown, Message | None]:
        """A session's head and window, and what to recall for.

        Raises:
            InvalidInput: An id or the message is not usable.
            SessionOfAnotherUser: The session belongs to another user.
        """
        self._guard.check(session_id, user_id)
        head = self._guard.owned(session_id, user_id)
        entries = self._windows.of(head) if head else []
        query = _query(message)
        window = self.packer.window(head, entries, query)
        if query is None:
            turns = (entry.message for entry in reversed(window.turns))
            query = next((turn for turn in turns if role_of(turn) == "user"), None)
        return head, window, query

    def recall(self, scope: Scope, message: Message | None) -> tuple[Found, list[str]]:
        """What blocks recall, and a warning for each that could not be asked."""
        found, warnings = self._recaller.recall(scope, message, self.packer.candidates)
        return existing(self._store, found), warnings


def existing(store: SessionStore, found: Found) -> Found:
    """What was recalled, without what comes from sessions that are gone."""
    named = {source[0] for recalls in found.values() for one in recalls for source in one.sources}
    gone = named - store.existing(named) if named else named
    return {
        block: [one for one in recalls if not any(source[0] in gone for source in one.sources)]
        for block, recalls in found.items()
    }


def _query(message: Any) -> Message | None:
    if message is None or isinstance(message, Message):
        return message
    if isinstance(message, str):
        return Message(role="user", content=message)
    return Message.of(message)
