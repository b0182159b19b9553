"""Providers for Microsoft's Agent Framework that store and recall with an `AgentMemory`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from agent_memory.core.formats import exact
from agent_memory.core.formats.registry import AGENT_FRAMEWORK
from agent_memory.core.messages import Message as MemoryMessage
from agent_memory.core.rendering import items_of
from agent_memory.core.text import listed_text
from agent_memory.engine.memory import AgentMemory
from agent_memory.errors import AgentMemoryError, MissingExtra
from agent_memory.integrations.adapting import before_question, threaded, value_of

try:
    from agent_framework import AgentSession, ContextProvider, HistoryProvider, Message
except ImportError as error:
    raise MissingExtra("The Agent Framework's providers", "agent-framework") from error

__all__ = ["AgentMemoryContextProvider", "AgentMemoryHistoryProvider"]

logger = logging.getLogger(__name__)

_QUESTION = "agent_memory_question"
"""The key in the state that `before_run` passes to `get_messages`."""

_RECENT = 100
"""The number of newest messages in which approvals are pending."""

_NONE = "default"
"""The session id of runs that have none."""


class AgentMemoryHistoryProvider(HistoryProvider):
    """Stores the framework's sessions as sessions of the memory. Blocks absorb these sessions.

    Args:
        user_id: The user of the sessions; `memory.delete_user` erases the sessions. None for no
            user.
        within_budget: Whether a run gets the session's context instead of all messages. The context
            has a summary and fits the memory's budget.
        skip_excluded: Whether to omit messages that the framework's compaction has excluded.
        source_id: The provider's name.
        **options: Options of `HistoryProvider`, such as `store_outputs`.
    """

    DEFAULT_SOURCE_ID: ClassVar[str] = "agent_memory"

    def __init__(
        self,
        memory: AgentMemory,
        *,
        user_id: str | None = None,
        within_budget: bool = False,
        skip_excluded: bool = False,
        source_id: str = DEFAULT_SOURCE_ID,
        **options: Any,
    ) -> None:
        super().__init__(source_id=source_id, **options)
        self._memory = memory
        self._user_id = user_id
        self._within_budget = within_budget
        self.skip_excluded = skip_excluded

    async def before_run(
        self, *, agent: Any, session: AgentSession, context: Any, state: dict[str, Any]
    ) -> None:
        """Load the session, or the context for the user's newest message."""
        state = {**state, _QUESTION: _question(context)}
        await super().before_run(agent=agent, session=session, context=context, state=state)

    @threaded
    def get_messages(
        self, /, session_id: str | None, *, state: dict[str, Any] | None = None, **kwargs: Any
    ) -> list[Message]:
        """Return the messages of a session, oldest first."""
        name = session_id or _NONE
        if self._within_budget:
            chat = self._context(name, (state or {}).get(_QUESTION))
        else:
            entries = self._memory.history(name, user_id=self._user_id)
            items = (item for entry in entries for item in items_of(entry.message, AGENT_FRAMEWORK))
            chat = [Message.from_dict(item) for item in items]
        if self.skip_excluded:
            chat = [item for item in chat if not item.additional_properties.get("_excluded")]
        return chat

    def _context(self, name: str, question: str | None) -> list[Message]:
        session = self._memory.session(name, self._user_id)
        context = session.get(question, format=AGENT_FRAMEWORK)
        items = context.to_messages()
        chat = [Message.from_dict(exact.read(item)) for item in items]
        if question:  # the run adds its own messages
            recalls = before_question(context, chat.pop().text)
            chat += [Message("user", [recalls])] if recalls else []
        log = [entry.message for entry in session.history(last=_RECENT)]
        recent = [item for message in log for item in items_of(message, AGENT_FRAMEWORK)]
        decided = _approvals(recent, "response")
        for item in recent:  # a context has no call without its result
            if _approvals([item], "request") - decided and item not in items:
                chat.append(Message.from_dict(exact.read(item)))
        return chat

    @threaded
    def save_messages(
        self,
        /,
        session_id: str | None,
        messages: Sequence[Message],
        *,
        state: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Append all messages, or none of them after an error."""
        if messages:
            items = [_storable(message) for message in messages]
            self._memory.update(session_id or _NONE, items, user_id=self._user_id)


class AgentMemoryContextProvider(ContextProvider):
    """Adds relevant memories to each run, and can store the run's messages.

    If the memory fails, the run continues without memories, and a warning is logged.

    Args:
        user_id: The user: an id, or a function of the run's session.
        limit: Maximum number of recalls.
        stores: Whether to store the run's messages. Leave it False if an
            `AgentMemoryHistoryProvider` with the same memory stores them.
        source_id: The provider's name.
    """

    DEFAULT_SOURCE_ID: ClassVar[str] = "agent_memory_recall"

    def __init__(
        self,
        memory: AgentMemory,
        *,
        user_id: str | Callable[[AgentSession], str],
        limit: int = 8,
        stores: bool = False,
        source_id: str = DEFAULT_SOURCE_ID,
    ) -> None:
        super().__init__(source_id)
        self._memory = memory
        self._user_id = user_id
        self._limit = limit
        self._stores = stores

    @threaded
    def before_run(
        self, *, agent: Any, session: AgentSession, context: Any, state: dict[str, Any]
    ) -> None:
        """Add memories relevant to the user's newest message."""
        question = _question(context)
        if question is None:
            return
        try:
            recalls = self._memory.search(
                question, user_id=value_of(self._user_id, session), limit=self._limit
            )
        except AgentMemoryError as error:
            logger.warning("nothing was recalled: %s", error)
            return
        if recalls:
            lines = "\n".join(listed_text(str(recall)) for recall in recalls)
            text = f"<memory>\n{lines}\n</memory>"
            context.extend_messages(self, [Message("user", [text])])

    @threaded
    def after_run(
        self, *, agent: Any, session: AgentSession, context: Any, state: dict[str, Any]
    ) -> None:
        if not self._stores:
            return
        answered = context.response.messages if context.response else []
        items = [_storable(message) for message in (*context.input_messages, *answered)]
        try:
            user_id = value_of(self._user_id, session)
            self._memory.update(context.session_id or _NONE, items, user_id=user_id)
        except AgentMemoryError as error:
            logger.warning("a run was not stored: %s", error)


def _question(context: Any) -> str | None:
    """Return the text of the user's newest message in a run's input."""
    texts = [item.text for item in context.input_messages if item.role == "user"]
    return next(filter(str.strip, reversed(texts)), None)


def _approvals(items: Sequence[dict[str, Any]], kind: str) -> set[str]:
    """Return the ids of the approvals that messages request, or respond to."""
    parts = (part for item in items for part in item["contents"])
    return {part["id"] for part in parts if part.get("type") == f"function_approval_{kind}"}


def _storable(message: Message) -> MemoryMessage:
    return MemoryMessage(raw=exact.written(message.to_dict()), format=AGENT_FRAMEWORK)
