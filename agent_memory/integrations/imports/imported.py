"""`Imported`: the result of an import."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime

from agent_memory.core.messages import Message
from agent_memory.integrations.imports.conversations import Unread

_MOST = 10_000


@dataclass(slots=True)
class Imported:
    """The result of an import.

    Attributes:
        sessions: Sessions in the source.
        messages: Readable messages in the source.
        notes: Notes in the source.
        new_sessions: Sessions that this import created; 0 for a dry run.
        new_messages: Messages that it stored; the others existed.
        new_notes: Notes that it wrote.
        first: Time of the oldest message, if known.
        last: Time of the newest message, if known.
        deleted: Sessions and notes that were deleted here and stay so, wholly or in part.
        assigned: Sessions without a user that were given to the user.
        elsewhere: Number of sessions imported before that belong to another user, by that user;
            None: without a user.
        unread: The first 10,000 parts that could not be read or stored, with the reason.
        failed: Number of such parts.
        left_out: Number of parts that do not belong to a conversation, by kind.
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
    assigned: int = 0
    elsewhere: Counter[str | None] = field(default_factory=Counter)
    unread: list[Unread] = field(default_factory=list)
    failed: int = 0
    left_out: Counter[str] = field(default_factory=Counter)

    def fail(self, where: str, why: str) -> None:
        """Record a part that could not be read or stored."""
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
