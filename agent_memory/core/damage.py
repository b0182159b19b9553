"""What of a store cannot be read, by itself. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from agent_memory.core.ids import readable
from agent_memory.core.records import Head
from agent_memory.errors import Damaged

Kind = Literal["session", "message", "fact", "vector"]

_IDENTITY = {"user_id", "end", "total", "version", "created_at"}
_TODO = "`agent-memory doctor --repair` says what can be done about it."


@dataclass(frozen=True, slots=True)
class Damage:
    """One record that is not what was written.

    Attributes:
        kind: What it is; a "session" is its head.
        session_id: The session, as far as that can be told.
        seq: The message's; of a record, the first message that it derives from.
        block: The block whose record it is.
        record_id: The record's id.
        owner: Whose catalog of vectors it is, of such a one. No text tells it.
        broken: What of a head cannot be read, by name.
        head: What of it can; the rest is as a session has it that begins.
    """

    kind: Kind
    session_id: str = ""
    seq: int = 0
    block: str = ""
    record_id: str = ""
    owner: str = ""
    broken: tuple[str, ...] = ()
    head: Head | None = None

    def __str__(self) -> str:
        if self.kind == "session":
            return f"Session {readable(self.session_id)!r}"
        if self.kind == "message":
            return f"Message {self.seq} of session {readable(self.session_id)!r}"
        return f"The {self.kind} {self.record_id!r} of block {self.block!r}"

    @property
    def is_known(self) -> bool:
        """Whether a head tells whose it is, and which: then what is broken of it can be replaced
        by compare-and-swap."""
        return self.head is not None and not _IDENTITY & {*self.broken}

    def error(self) -> Damaged:
        """What to raise where it is asked for."""
        which = f" ({', '.join(self.broken)})" if self.broken else ""
        return Damaged(f"{self} is damaged in the store and cannot be read{which}. {_TODO}", self)
