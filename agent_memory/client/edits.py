"""`AgentMemory.edit` through a service: the function runs in the client, and its result is sent."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from agent_memory.core.messages import Message, compact_json
from agent_memory.core.records import Entry
from agent_memory.engine.edit.plans import entries_and_messages
from agent_memory.errors import InvalidInput


def digest_of(log: Sequence[Entry]) -> str:
    """Return a digest of a log, to detect changes."""
    said = [[one.seq, one.message.to_dict(), one.message.created_at.isoformat()] for one in log]
    return hashlib.sha256(compact_json(said).encode("utf-8", "surrogatepass")).hexdigest()


def sent(log: Sequence[Entry], wanted: object) -> list[int | Message]:
    """Encode an edited log: seqs of entries that stay, and new messages.

    Raises:
        InvalidMessage: It is not a list of entries and messages.
    """
    known = {one.seq: one for one in log}
    found: list[int | Message] = []
    for one in entries_and_messages(wanted):
        if isinstance(one, Message):
            found.append(one)
        else:
            found.append(one.seq if known.get(one.seq) == one else one.message)
    return found


def edited(log: Sequence[Entry], wanted: Sequence[int | Message]) -> list[Entry | Message]:
    """Decode the result of `sent`, for the same log.

    Raises:
        InvalidInput: It has a seq that the log does not have.
    """
    known = {one.seq: one for one in log}
    missing = [one for one in wanted if isinstance(one, int) and one not in known]
    if missing:
        raise InvalidInput(f"The log has no message {missing[0]}. Read it again and repeat.")
    return [known[one] if isinstance(one, int) else one for one in wanted]
