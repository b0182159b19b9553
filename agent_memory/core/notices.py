"""Notices: a call reports what it left out, and why, to its caller."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextvars import ContextVar
from typing import TypeVar

logger = logging.getLogger(__name__)

T = TypeVar("T")

_collector: ContextVar[list[str] | None] = ContextVar("agent_memory_notices", default=None)


def notice(text: str) -> None:
    """Report a notice to the caller that collects notices. Log it if there is none."""
    notices = _collector.get()
    if notices is None:
        logger.warning("%s", text)
    elif text not in notices:
        notices.append(text)


def noticed(call: Callable[[], T]) -> tuple[T, list[str]]:
    """Make a call on this thread. Return its result and its notices."""
    notices: list[str] = []
    before = _collector.set(notices)
    try:
        return call(), notices
    finally:
        _collector.reset(before)
