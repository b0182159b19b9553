"""Helpers that several adapters use."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager
from functools import partial, wraps
from inspect import iscoroutinefunction
from typing import Any, Concatenate, ParamSpec, TypeVar

from agent_memory.core.context import MemoryContext
from agent_memory.engine.memory import AgentMemory
from agent_memory.ltm_blocks.base import record_id

LONGEST_BRANCH = 1_000
"""The most messages that a framework's new branch removes from a log."""

S = TypeVar("S")
P = ParamSpec("P")
T = TypeVar("T")


def threaded(
    method: Callable[Concatenate[S, P], T],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """Return the async form of a method. It runs the method or its override on a thread."""

    @wraps(method)
    async def awaited(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        own = getattr(self, method.__name__)
        # if a method was decorated with `threaded`, its name refers to the async form
        call = partial(method, self) if iscoroutinefunction(own) else own
        return await asyncio.to_thread(call, *args, **kwargs)

    return awaited


def value_of(setting: str | Callable[[S], str | None] | None, run: S) -> str | None:
    """Return a user or a session that is set, or that a function returns for a run."""
    return setting(run) if callable(setting) else setting


def before_question(context: MemoryContext, text: str) -> str:
    """Return the recalls in the text of a context's last message, which ends with the question."""
    # `question` is empty if the window already ends with the question
    return text.removesuffix((context.question or context.messages[-1]).text()).strip()


def locked(memory: AgentMemory, *names: str) -> AbstractContextManager[None]:
    """Return the lock that these names identify. One caller in all processes can hold the lock."""
    return memory.components.resources.locked(record_id(*names))


def joined(*names: str) -> str:
    """Join names with slashes. Slashes in names are escaped, so that each result is unique."""
    return "/".join(name.replace("%", "%25").replace("/", "%2F") for name in names)
