"""Sessions of OpenAI's Agents SDK over a memory.

session = AgentMemorySession(memory, "chat-1", user_id="ana")
await Runner.run(agent, "Where do I live?", session=session, run_config=RunConfig(
    session_input_callback=session.recalled))
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import fields
from typing import Any, TypeVar, cast

from agent_memory.aio.memory import AsyncAgentMemory
from agent_memory.core.formats import exact
from agent_memory.core.formats.registry import RESPONSES
from agent_memory.core.messages import Message
from agent_memory.core.records import Entry
from agent_memory.engine.memory import AgentMemory
from agent_memory.errors import InvalidMessage, MissingExtra

try:
    from agents.items import TResponseInputItem
    from agents.memory.session_settings import SessionSettings
except ImportError as error:
    raise MissingExtra("Sessions of OpenAI's Agents SDK", "openai-agents") from error

__all__ = ["AgentMemorySession"]

T = TypeVar("T")
Items = list[TResponseInputItem]

_EXACT = "exact"
"""The format of items that JSON does not give back: see `core.formats.exact`."""


class AgentMemorySession:
    """A session of the SDK: what is added is given back as it was, compactions and reasoning too.

    `recalled` gives a run what the memory knows, within its budget: give it to the run's
    configuration as `session_input_callback`.

    Args:
        memory: The memory.
        session_id: The session.
        user_id: Whose it is.
        session_settings: The SDK's; its `limit` is how many of the newest items a run is given.

    Attributes:
        session_id: As given.
        session_settings: As given.
    """

    def __init__(
        self,
        memory: AgentMemory | AsyncAgentMemory,
        session_id: str,
        *,
        user_id: str | None = None,
        session_settings: SessionSettings | dict[str, Any] | None = None,
    ) -> None:
        self._memory = memory.memory if isinstance(memory, AsyncAgentMemory) else memory
        self._session = self._memory.session(session_id, user_id)
        self.session_id = session_id
        given = session_settings or {}
        if isinstance(given, dict):
            if unknown := given.keys() - {one.name for one in fields(SessionSettings)}:
                raise TypeError(f"Unknown session settings: {', '.join(sorted(unknown))}")
            given = SessionSettings(**given)
        self.session_settings: SessionSettings | None = given

    async def get_items(self, limit: int | None = None) -> Items:
        """The items, oldest first.

        Args:
            limit: At most so many of the newest; by default what the settings say. Below 0: all.
        """
        if limit is None and self.session_settings is not None:
            limit = self.session_settings.limit
        last = None if limit is None or limit < 0 else limit
        entries = await asyncio.to_thread(self._session.history, last=last)
        return [item for entry in entries for item in _items(entry)]

    async def add_items(self, items: Items) -> None:
        """Append items, all or none. A caller who is cancelled waits until they are stored."""
        if items:
            await _finished(lambda: self._session.update([_kept(item) for item in items]))

    async def pop_item(self) -> TResponseInputItem | None:
        """Take the newest item back, with what was absorbed of it; None where there is none."""
        popped = await _finished(lambda: self._session.pop(1))
        found = [item for message in popped for item in _of(message)]
        return found[-1] if found else None

    async def clear_session(self) -> None:
        """Delete the session, and what derives from it."""
        await _finished(self._session.delete)

    async def recalled(self, history: Items, new_items: Items) -> Items:
        """What a run is sent: the session's context within the memory's budget, with what bears on
        the newest question, and the new items at the end. Stores nothing.

        Args:
            history: What `get_items` gave; the memory's window takes its place.
            new_items: Of this run.
        """
        question = next((text for one in reversed(new_items) if (text := _asked(one))), None)
        context = await asyncio.to_thread(self._session.get, question, format=RESPONSES)
        told = context.to_messages()
        if question is not None and told and _asked(told[-1]) == question:
            told = told[:-1]  # it is among the new items
        return [*cast("Items", told), *new_items]


def _asked(item: Any) -> str | None:
    """What a user says in an item; None for all else."""
    if not isinstance(item, dict) or item.get("role") != "user":
        return None
    content = item.get("content")
    if isinstance(content, list):
        texts = [part.get("text") or "" for part in content if isinstance(part, dict)]
        content = "\n".join(text for text in texts if text)
    return content or None if isinstance(content, str) else None


def _kept(item: Any) -> Message:
    """An item as the log keeps it."""
    raw = dict(item) if isinstance(item, dict) else item
    try:
        return Message(raw=raw, format=RESPONSES)
    except InvalidMessage:
        return Message(raw={"value": exact.written(raw)}, format=_EXACT)


def _items(entry: Entry) -> Sequence[TResponseInputItem]:
    return _of(entry.message)


def _of(message: Message) -> Sequence[TResponseInputItem]:
    """The items of a message: what others than the SDK said, as it takes it."""
    if message.raw is not None and message.format == _EXACT:
        return [exact.read(message.raw["value"])]
    if message.raw is not None and message.format == RESPONSES:
        return [cast("TResponseInputItem", message.raw)]
    from agent_memory.core.formats.responses import from_chat

    return [cast("TResponseInputItem", one) for view in message.views() for one in from_chat(view)]


async def _finished(call: Callable[[], T]) -> T:
    """Make a call on a thread; a caller who is cancelled learns so once it has ended."""
    made = asyncio.ensure_future(asyncio.to_thread(call))
    cancelled: asyncio.CancelledError | None = None
    while not made.done():
        try:
            await asyncio.wait([made])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        with suppress(Exception):  # that it was cancelled is what its caller is told
            made.result()
        raise cancelled
    return made.result()
