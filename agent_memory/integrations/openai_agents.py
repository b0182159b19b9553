"""Sessions for OpenAI's Agents SDK that store in an `AgentMemory`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any, TypeVar, cast

from agent_memory.aio import AsyncAgentMemory
from agent_memory.core.formats import exact
from agent_memory.core.formats.registry import RESPONSES
from agent_memory.core.messages import Message
from agent_memory.core.rendering import items_of
from agent_memory.engine.memory import AgentMemory
from agent_memory.errors import InvalidMessage, MissingExtra
from agent_memory.integrations.adapting import before_question, threaded

try:
    from agents.items import TResponseInputItem
    from agents.memory.session_settings import SessionSettings
except ImportError as error:
    raise MissingExtra("Sessions of OpenAI's Agents SDK", "openai-agents") from error

__all__ = ["AgentMemorySession"]

T = TypeVar("T")
Items = list[TResponseInputItem]

_EXACT = "exact"
"""The format of items that JSON alone would not restore; see `core.formats.exact`."""


class AgentMemorySession:
    """A session of the SDK. It returns all items unchanged, even compactions and reasoning.

    `recalled` adds the memory's recalls to a run, within the memory's budget. Set `recalled` as
    `session_input_callback` in the run's configuration.

    Args:
        session_settings: The SDK's settings. `limit` is the number of newest items that a run
            gets.
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
        settings = session_settings or {}
        if isinstance(settings, dict):
            if unknown := settings.keys() - {field.name for field in fields(SessionSettings)}:
                raise TypeError(f"Unknown session settings: {', '.join(sorted(unknown))}")
            settings = SessionSettings(**settings)
        self.session_settings: SessionSettings | None = settings

    @threaded
    def get_items(self, limit: int | None = None) -> Items:
        """Return the items, oldest first.

        Args:
            limit: Maximum number of newest items. None takes the limit of `session_settings`. A
                negative number returns all items.
        """
        if limit is None and self.session_settings is not None:
            limit = self.session_settings.limit
        last = None if limit is None or limit < 0 else limit
        entries = self._session.history(last=last)
        return [item for entry in entries for item in _of(entry.message)]

    async def add_items(self, items: Items) -> None:
        """Append all items, or none after an error. A cancelled caller waits until this is done."""
        if items:
            await _finished(lambda: self._session.update([_storable(item) for item in items]))

    async def pop_item(self) -> TResponseInputItem | None:
        """Remove and return the newest item; None if the session is empty.

        Blocks forget everything that they absorbed from the item.
        """
        return await _finished(self._pop)

    def _pop(self) -> TResponseInputItem | None:
        newest = self._session.history(last=1)
        items = _of(newest[-1].message) if newest else ()
        if len(items) > 1:  # a message from another source: only its last item is removed
            rest = [_storable(item) for item in items[:-1]]
            self._session.edit(lambda log: [*log[:-1], *rest])
            return items[-1]
        popped = [item for message in self._session.pop(1) for item in _of(message)]
        return popped[-1] if popped else None

    async def clear_session(self) -> None:
        """Delete the session, and everything derived from it."""
        await _finished(self._session.delete)

    @threaded
    def recalled(self, history: Items, new_items: Items) -> Items:
        """Return a run's input: the session's context within the budget, and the new items.

        The context includes recalls for the newest question. Nothing is stored.

        Args:
            history: The result of `get_items`. The context replaces its items.
            new_items: The run's new items.
        """
        question = next((text for item in reversed(new_items) if (text := _question(item))), None)
        context = self._session.get(question, format=RESPONSES)
        items = context.to_messages()
        if question is not None and items:  # the question itself is among the new items
            recalls = before_question(context, _question(items.pop()) or "")
            items += [{"role": "user", "content": recalls}] if recalls else []
        history[:] = cast("Items", items)  # the SDK stores each returned item that is in no list
        return [*history, *new_items]


def _question(item: Any) -> str | None:
    if not isinstance(item, dict) or item.get("role") != "user":
        return None
    content = item.get("content")
    if isinstance(content, list):
        texts = [part.get("text") or "" for part in content if isinstance(part, dict)]
        content = "\n".join(text for text in texts if text)
    return content if isinstance(content, str) and content.strip() else None


def _storable(item: Any) -> Message:
    raw = dict(item) if isinstance(item, dict) else item
    try:
        return Message(raw=raw, format=RESPONSES)
    except InvalidMessage:
        return Message(raw={"value": exact.written(raw)}, format=_EXACT)


def _of(message: Message) -> Sequence[TResponseInputItem]:
    """Return the items of a message. A message from another source is converted."""
    if message.raw is not None and message.format == _EXACT:
        return [exact.read(message.raw["value"])]
    return items_of(message, RESPONSES)


async def _finished(call: Callable[[], T]) -> T:
    """Make a call on a thread. A cancelled caller waits until the call has ended."""
    task = asyncio.ensure_future(asyncio.to_thread(call))
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        task.exception()  # marks the error as retrieved: the caller gets the cancellation
        raise cancelled
    return task.result()
