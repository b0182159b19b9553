"""What a call says beside what it gives: that something was left out, and why."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextvars import ContextVar
from typing import TypeVar

logger = logging.getLogger(__name__)

T = TypeVar("T")

_told: ContextVar[list[str] | None] = ContextVar("agent_memory_notices", default=None)


def notice(text: str) -> None:
    """Say something to whoever listens; where nobody does, log it."""
    told = _told.get()
    if told is None:
        logger.warning("%s", text)
    elif text not in told:
        told.append(text)


def noticed(call: Callable[[], T]) -> tuple[T, list[str]]:
    """What a call gives, and what it says beside that. Both on this thread."""
    told: list[str] = []
    before = _told.set(told)
    try:
        return call(), told
    finally:
        _told.reset(before)
