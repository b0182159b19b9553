"""Unreadable records of a store. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from agent_memory.core.limits import readable
from agent_memory.core.records import Head
from agent_memory.errors import Damaged

Kind = Literal["session", "message", "fact", "vector", "file"]

_IDENTITY = {"user_id", "end", "total", "version", "created_at"}
_TODO = "`agent-memory doctor --repair` shows how to repair it."


@dataclass(frozen=True, slots=True)
class Damage:
    """A record that cannot be read from a store, or differs from what was written.

    Attributes:
        seq: The seq of the message. For a record, the seq of its first source message.
        owner: The owner of a damaged catalog (list) of vectors. Error texts do not show the owner.
        broken: The unreadable fields of a head.
        head: A head with the readable fields. Its other fields have the values of a new session.
        owners: The values of `Scope.owner` that are readable in the file.
    """

    kind: Kind
    session_id: str = ""
    seq: int = 0
    block: str = ""
    record_id: str = ""
    owner: str = ""
    broken: tuple[str, ...] = ()
    head: Head | None = None
    path: str = ""
    owners: frozenset[str] = frozenset()

    def __str__(self) -> str:
        if self.kind == "file":
            return f"The file {self.path!r}"
        if self.kind == "session":
            return f"Session {readable(self.session_id)!r}"
        if self.kind == "message":
            return f"Message {self.seq} of session {readable(self.session_id)!r}"
        return f"The {self.kind} {self.record_id!r} of block {self.block!r}"

    @property
    def is_usable(self) -> bool:
        """Return whether a head's irreplaceable fields are readable, such as its `user_id`."""
        return self.head is not None and not _IDENTITY & {*self.broken}

    def error(self) -> Damaged:
        which = f" ({', '.join(self.broken)})" if self.broken else ""
        return Damaged(f"{self} is damaged in the store and cannot be read{which}. {_TODO}", self)
