"""LangChain's agents and chains over a memory.

agent = create_agent(model, tools, middleware=[AgentMemoryMiddleware(memory, user_id="ana")])
agent.invoke({"messages": [...]}, {"configurable": {"thread_id": "chat-1"}})
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from agent_memory.core.formats.registry import LANGCHAIN
from agent_memory.core.messages import Message
from agent_memory.engine.memory import AgentMemory
from agent_memory.errors import InvalidInput, InvalidMessage, MissingExtra

try:
    from langchain.agents.middleware.types import AgentMiddleware, ModelRequest, ModelResponse
    from langchain_core.chat_history import BaseChatMessageHistory
    from langchain_core.messages import (
        AnyMessage,
        BaseMessage,
        message_to_dict,
        messages_from_dict,
    )
    from langgraph.runtime import Runtime
except ImportError as error:
    raise MissingExtra("LangChain's middleware and history", "langchain") from error

__all__ = ["AgentMemoryChatMessageHistory", "AgentMemoryMiddleware"]

Whose = str | Callable[[Runtime[Any]], str | None] | None


class AgentMemoryMiddleware(AgentMiddleware[Any, Any, Any]):
    """Long-term memory of users, and chats within a token budget, for an agent.

    Before each call of the model the new messages of the run are stored, and the model is sent the
    session's context in place of the graph's messages: its newest part within the budget, the
    summary of what was before, and what is recalled for the question. A retry stores nothing twice.
    The graph's own state stays as it is.

    Args:
        memory: The memory. Its settings decide what overflows, and what is recalled.
        user_id: Whose: an id, or what tells it from LangGraph's `Runtime`, such as
            `lambda runtime: runtime.context.user_id`. Never what a model says.
        session_id: Which chat: the same; by default the thread of the run.
    """

    def __init__(
        self, memory: AgentMemory, *, user_id: Whose = None, session_id: Whose = None
    ) -> None:
        super().__init__()
        self.tools = []
        self._memory = memory
        self._user_id = user_id
        self._session_id = session_id

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        """Send the model the session's context."""
        return handler(self._with_context(request))

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ModelResponse[Any]:
        """Send the model the session's context."""
        return await handler(await asyncio.to_thread(self._with_context, request))

    def after_agent(self, state: Any, runtime: Runtime[Any]) -> dict[str, Any] | None:
        """Store what the run has said."""
        self._store(state["messages"], runtime)
        return None

    async def aafter_agent(self, state: Any, runtime: Runtime[Any]) -> dict[str, Any] | None:
        """Store what the run has said."""
        await asyncio.to_thread(self._store, state["messages"], runtime)
        return None

    def _with_context(self, request: ModelRequest[Any]) -> ModelRequest[Any]:
        session_id, user_id = self._store(request.messages, request.runtime)
        room = self._memory.config.max_tokens
        if request.system_message is not None:
            counter = self._memory.components.services.resources.counter
            (told,) = from_langchain([request.system_message])
            room = max(1, room - counter.message(Message.of(told)))
        context = self._memory.get(session_id, user_id=user_id, max_tokens=room, format=LANGCHAIN)
        messages: list[AnyMessage] = messages_from_dict(context.to_messages())  # type: ignore[assignment]
        return request.override(messages=messages)

    def _store(
        self, messages: Sequence[BaseMessage], runtime: Runtime[Any]
    ) -> tuple[str, str | None]:
        user_id = self._of(self._user_id, runtime)
        session_id = self._of(self._session_id, runtime)
        if session_id is None and runtime.execution_info is not None:
            session_id = runtime.execution_info.thread_id
        if session_id is None:
            raise InvalidInput(
                "The run has no thread to remember. Give a thread_id in its config's "
                '"configurable", with a checkpointer, or the middleware a `session_id`.'
            )
        self._memory.update(session_id, from_langchain(messages), user_id=user_id)
        return session_id, user_id

    def _of(self, given: Whose, runtime: Runtime[Any]) -> str | None:
        return given(runtime) if callable(given) else given


class AgentMemoryChatMessageHistory(BaseChatMessageHistory):
    """One session's messages, as `RunnableWithMessageHistory` takes them. LangChain has deprecated
    such histories: agents take the middleware.

    Args:
        memory: The memory.
        session_id: The session.
        user_id: Whose it is.
        recalled: Whether `messages` are the session's context within the budget, with what is
            recalled; else all that was said.
    """

    def __init__(
        self,
        memory: AgentMemory,
        session_id: str,
        *,
        user_id: str | None = None,
        recalled: bool = False,
    ) -> None:
        self._session = memory.session(session_id, user_id)
        self._recalled = recalled

    @property
    def messages(self) -> list[BaseMessage]:  # type: ignore[override]
        """What was said, oldest first."""
        if self._recalled:
            return messages_from_dict(self._session.get(format=LANGCHAIN).to_messages())
        return to_langchain([entry.message for entry in self._session.history()])

    def add_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Store messages, all or none; those whose ids are stored already are passed over."""
        if messages:
            self._session.update(from_langchain(messages))

    def clear(self) -> None:
        """Delete the session."""
        self._session.delete()


def from_langchain(messages: Sequence[BaseMessage]) -> list[dict[str, Any]]:
    """LangChain's messages as `update` takes them: kept as they are, to be given back so.

    What a tool gave its caller beside the model (`artifact`) is kept where it is plain JSON.
    """
    return [_kept(one) for one in messages]


def to_langchain(messages: Sequence[Message]) -> list[BaseMessage]:
    """A log's messages as LangChain's, those of other origin too."""
    from agent_memory.core.formats.langchain import from_chat

    found: list[dict[str, Any]] = []
    for one in messages:
        if one.format == LANGCHAIN and one.raw is not None:
            found.append(one.raw)
        else:
            found += [item for view in one.views() for item in from_chat(view)]
    return messages_from_dict(found)


def _kept(message: BaseMessage) -> dict[str, Any]:
    raw = message_to_dict(message)
    given = {"id": message.id} if message.id else {}
    kept = {"raw": raw, "format": LANGCHAIN, **given}
    if raw["data"].get("artifact") is not None:
        try:
            Message.of(kept)
        except InvalidMessage:
            raw["data"]["artifact"] = None
    return kept
