"""Playing the demo's conversation: every overflow as the engine's heads and log tell it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from agent_memory.cli import conversation

if TYPE_CHECKING:
    from agent_memory.core.records import Entry, Head
    from agent_memory.engine.memory import AgentMemory


@dataclass(frozen=True, slots=True)
class Overflowed:
    """One overflow, as the engine's heads and log tell it.

    Attributes:
        arrived: The message that made the window too large.
        window: The window with it, before anything left.
        left: Seqs that left.
        tokens_before: Tokens of that window's turns.
        head: The session's head afterwards.
    """

    arrived: Entry
    window: list[Entry]
    left: list[int]
    tokens_before: int
    head: Head


def play(memory: AgentMemory) -> list[Overflowed]:
    """Append the conversation message by message; the overflows that happened on the way."""
    overflows: list[Overflowed] = []
    before: Head | None = None
    for message in conversation.messages():
        after = memory.update(conversation.SESSION, message, user_id=conversation.USER)
        if before and (after.start, after.pinned) != (before.start, before.pinned):
            overflows.append(_overflowed(memory, before, after))
        before = after
    return overflows


def window_of(memory: AgentMemory, head: Head) -> list[Entry]:
    """The turns in the window of a head, pinned ones first."""
    log = memory.history(head.session_id, limit=head.end)
    return [
        entry
        for entry in log
        if (entry.seq > head.start or entry.seq in head.pinned) and not entry.message.is_system
    ]


def _overflowed(memory: AgentMemory, before: Head, after: Head) -> Overflowed:
    window = window_of(memory, replace(before, end=after.end))
    stays = {entry.seq for entry in window_of(memory, after)}
    return Overflowed(
        arrived=window[-1],
        window=window,
        left=[entry.seq for entry in window if entry.seq not in stays],
        tokens_before=after.total - before.start_total + before.pinned_tokens,
        head=after,
    )
