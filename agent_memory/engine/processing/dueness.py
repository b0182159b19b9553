"""What is to be absorbed now, and when to look again. Pure."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from agent_memory.core.records import Head
from agent_memory.strategies.base import Absorb


def due_upto(head: Head, cursor: int, absorb: Absorb, total_at: Callable[[int], int]) -> int:
    """The seq up to which a block is to absorb the session now; at or below its cursor: not yet.

    Args:
        head: The session's.
        cursor: The block's.
        absorb: The strategy's word: on overflow, at every update, or once so many tokens wait.
        total_at: The running token total at a seq; asked only where tokens decide.
    """
    if absorb == "every_update":
        return head.end
    if absorb != "overflow" and cursor < head.end and head.total - total_at(cursor) >= absorb:
        return head.end
    return head.start  # what left the window


def idle_wait(newest: datetime, now: datetime, minutes: float) -> float:
    """Seconds until a session counts as idle; 0 where it does.

    Args:
        newest: Time of its newest message; one that lies in the future counts as now.
        now: The time.
        minutes: How long a session must have been silent.
    """
    silent = max(0.0, (now - newest).total_seconds())
    return max(0.0, minutes * 60 - silent)
