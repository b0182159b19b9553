"""`AgentMemory.edit` over a wire: a function stays where it is, and what it makes of a log goes."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from agent_memory.core.messages import Message, compact_json
from agent_memory.core.records import Entry
from agent_memory.engine.edit.plans import given_back
from agent_memory.errors import InvalidInput


def digest_of(log: Sequence[Entry]) -> str:
    """Tells whether a log is the one that it was."""
    said = [[one.seq, one.message.to_dict(), one.message.created_at.isoformat()] for one in log]
    return hashlib.sha256(compact_json(said).encode("utf-8", "surrogatepass")).hexdigest()


def sent(log: Sequence[Entry], wanted: object) -> list[int | Message]:
    """What a log is to be: the numbers of what it has, and messages that are new.

    Raises:
        InvalidMessage: It is no list of entries and messages.
    """
    known = {one.seq: one for one in log}
    found: list[int | Message] = []
    for one in given_back(wanted):
        if isinstance(one, Message):
            found.append(one)
        else:
            found.append(one.seq if known.get(one.seq) == one else one.message)
    return found


def edited(log: Sequence[Entry], wanted: Sequence[int | Message]) -> list[Entry | Message]:
    """What `sent` tells, of the same log.

    Raises:
        InvalidInput: It tells of a number that the log does not have.
    """
    known = {one.seq: one for one in log}
    missing = [one for one in wanted if isinstance(one, int) and one not in known]
    if missing:
        raise InvalidInput(f"The log has no message {missing[0]}. Read it, and decide anew.")
    return [known[one] if isinstance(one, int) else one for one in wanted]
