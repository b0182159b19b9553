"""Authorship in shared namespaces: the author of each message, and its first message."""

from __future__ import annotations

from datetime import UTC, datetime

from agent_memory.core.cache import Cache
from agent_memory.core.messages import Message
from agent_memory.core.records import Head, Record
from agent_memory.core.redaction import EMPTY_SYSTEM
from agent_memory.core.system_collections import AUTHORS
from agent_memory.ltm_blocks.base import record_id
from agent_memory.stores.base import RecordStore

_PLACE = AUTHORS.name
_MOST_KNOWN = 10_000


def signed(message: Message, agent: str) -> Message:
    """Return a message with its author, which replaces an author in its metadata."""
    return message.model_copy(update={"metadata": {**message.metadata, "agent": agent}})


def is_by(message: Message | None, agent: str) -> bool:
    """Return whether an agent wrote a message of a shared namespace, even if partly redacted."""
    if message is None:
        return False
    unsigned = message.is_system and message.to_dict() == EMPTY_SYSTEM.to_dict()
    return unsigned or message.metadata.get("agent") == agent


class Authors:
    """Stores where in a session an agent began to write.

    The messages have their author too, but the log may remove them.
    """

    def __init__(self, store: RecordStore) -> None:
        self._store = store
        self._known: Cache[tuple[str, str], datetime] = Cache(_MOST_KNOWN)

    def knows(self, agent: str, session_id: str) -> bool:
        """Return whether this process has stored it already."""
        return (agent, session_id) in self._known

    def wrote(self, agent: str, before: Head | None, after: Head) -> None:
        """Store that an agent wrote to a session, if that is new."""
        key = (agent, after.session_id)
        if self._known.get(key) == after.created_at:
            return
        same = before is not None and before.created_at == after.created_at
        first = before.end + 1 if before is not None and same else 1
        if self.first(agent, after.session_id) is None:
            self._note(agent, after.session_id, first)
        self._known.put(key, after.created_at)

    def first(self, agent: str, session_id: str) -> int | None:
        """Return a seq before which the agent wrote nothing in the session. None if never."""
        found = self._store.records(_PLACE, _owner(agent, session_id))
        return min((record.first for record in found), default=None)

    def drop(self, agent: str, session_id: str) -> None:
        """Delete the record after all of the agent's messages in the session were emptied."""
        self._store.delete_records(_PLACE, owner=_owner(agent, session_id))
        self._known.drop((agent, session_id))

    def _note(self, agent: str, session_id: str, first: int) -> None:
        owner = _owner(agent, session_id)
        record = Record(owner, owner, session_id, first, first, "", (), datetime.now(UTC))
        self._store.put_records(_PLACE, [record])


def _owner(agent: str, session_id: str) -> str:
    return record_id(len(agent), agent, session_id)
