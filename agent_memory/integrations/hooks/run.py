"""Run a hook for one event: a fast path for prompts, the library for other events."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING

from agent_memory.integrations.hooks.events import Event, answer, read_event

if TYPE_CHECKING:
    from agent_memory.engine.memory import AgentMemory

STORING = ("Stop", "PreCompact", "SessionEnd")

_SECONDS = 20.0
"""Time limit for storing on a stop; the next event stores the rest. A compaction has no limit."""


def run(
    agent: str,
    name: str,
    given: bytes,
    user_id: str,
    file: str | None,
    opened: Callable[[], AgentMemory],
) -> str:
    """Return the output for an event.

    Args:
        agent: The agent that the hook was installed for.
        name: The event.
        given: The agent's input.
        user_id: The user.
        file: The SQLite file, if prompts may read it directly; None to use the library.
        opened: Opens the memory.

    Raises:
        AgentMemoryError: The event is invalid, or the memory failed.
        OSError: The transcript cannot be read.
    """
    event = read_event(agent, name, given)
    if name == "UserPromptSubmit":
        return answer(event, _for_prompt(event, user_id, file, opened))
    with opened() as memory:
        if name == "SessionStart":
            from agent_memory.integrations.hooks.beginning import at_start

            return answer(event, at_start(memory, event, user_id))
        from agent_memory.integrations.hooks.indexing import note_words
        from agent_memory.integrations.hooks.storing import store

        compacts = name == "PreCompact"
        until = None if compacts else monotonic() + _SECONDS
        store(memory, event, user_id, until)
        if file is not None:
            note_words(memory, user_id, until)
        if compacts and memory.head(event.session_id, user_id=user_id) is not None:
            memory.checkpoint(event.session_id, user_id=user_id)
    return ""


def _for_prompt(
    event: Event, user_id: str, file: str | None, opened: Callable[[], AgentMemory]
) -> str:
    if not event.prompt.strip():
        return ""
    if file is not None:
        from agent_memory.integrations.hooks.prompt import recalled

        return recalled(file, user_id, event.prompt, event.session_id)
    from agent_memory.integrations.hooks.beginning import for_prompt

    with opened() as memory:
        return for_prompt(memory, event, user_id)
