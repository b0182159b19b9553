"""`Imported`: what an import found, and what became of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime

from agent_memory.core.messages import Message
from agent_memory.integrations.imports.chats import Unread

_MOST = 10_000


@dataclass(slots=True)
class Imported:
    """What an import found, and what became of it.

    Attributes:
        sessions: Sessions in the source.
        messages: Messages in the source that could be read.
        notes: Notes in it.
        new_sessions: Sessions that began with this import; of a dry run none.
        new_messages: Messages that were stored by it; the others were there.
        new_notes: Notes that were written by it.
        first: When the oldest message was said, as far as the source tells.
        last: When the newest was.
        deleted: Sessions that were deleted here, and left so.
        unread: What could not be read or stored, with the reason: the first 10,000.
        failed: How much could not be.
        left_out: How much is no part of a conversation, by what it is.
    """

    sessions: int = 0
    messages: int = 0
    notes: int = 0
    new_sessions: int = 0
    new_messages: int = 0
    new_notes: int = 0
    first: datetime | None = None
    last: datetime | None = None
    deleted: int = 0
    unread: list[Unread] = field(default_factory=list)
    failed: int = 0
    left_out: Counter[str] = field(default_factory=Counter)

    def fail(self, where: str, why: str) -> None:
        """Note what could not be read or stored."""
        self.failed += 1
        if len(self.unread) < _MOST:
            self.unread.append(Unread(where, why))

    def saw(self, message: Message) -> None:
        """Count a message."""
        self.messages += 1
        if "created_at" in message.model_fields_set:
            at = message.created_at
            self.first = at if self.first is None else min(self.first, at)
            self.last = at if self.last is None else max(self.last, at)
