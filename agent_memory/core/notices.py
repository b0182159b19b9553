"""Notices: a call reports what it left out, and why, to its caller."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextvars import ContextVar
from typing import TypeVar

logger = logging.getLogger(__name__)

T = TypeVar("T")

_told: ContextVar[list[str] | None] = ContextVar("agent_memory_notices", default=None)


def notice(text: str) -> None:
    """Report a notice to the caller that collects notices. Log it if there is none."""
    told = _told.get()
    if told is None:
        logger.warning("%s", text)
    elif text not in told:
        told.append(text)


def noticed(call: Callable[[], T]) -> tuple[T, list[str]]:
    """Make a call on this thread. Return its result and its notices."""
    told: list[str] = []
    before = _told.set(told)
    try:
        return call(), told
    finally:
        _told.reset(before)
