"""A hook that gives Haystack's agents an `AgentMemory`.

hook = AgentMemoryHook(memory, user_id="ana")
agent = Agent(chat_generator=model, hooks={"before_llm": [hook], "after_run": [hook]})
agent.run(messages, hook_context={"session_id": "chat-1"})
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from agent_memory.core.formats.registry import HAYSTACK
from agent_memory.core.messages import Message
from agent_memory.engine.memory import AgentMemory
from agent_memory.errors import ConfigError, InvalidInput, MissingExtra
from agent_memory.integrations.adapting import value_of

try:
    from haystack.components.agents.state import State, replace_values
    from haystack.dataclasses import ChatMessage, ChatRole
except ImportError as error:
    raise MissingExtra("Haystack's hook", "haystack") from error

__all__ = ["AgentMemoryHook"]

IdSource = str | Callable[[Mapping[str, Any]], str | None] | None

_STORED = "agent_memory_session"
"""The key in a message's `meta` for the id of the session that has stored the message."""


class AgentMemoryHook:
    """Gives an agent long-term memory of users and chats, within a token budget.

    Before each model call, the hook stores the run's new messages. It then replaces the agent's
    messages by the session's context: the newest messages within the budget, the summary of
    earlier messages, and recalls for the question. System messages stay first, and are not stored.
    After the run, the hook stores the answer. Register the hook for "before_llm" and "after_run".

    Args:
        memory: The memory. Its settings control overflow and recall.
        user_id: The user: an id, or a function of the run's `hook_context`, such as
            `lambda context: context["user_id"]`. Never use a model's output.
        session_id: The chat: an id, or a function of the `hook_context`. By default, it is the
            `hook_context`'s "session_id".
    """

    allowed_hook_points = ("before_llm", "after_run")

    def __init__(
        self, memory: AgentMemory, *, user_id: IdSource = None, session_id: IdSource = None
    ) -> None:
        self._memory = memory
        self._user_id = user_id
        self._session_id = session_id

    def run(self, state: State) -> None:
        """Store new messages. Before a model call, replace them by the session's context."""
        context = state.data.get("hook_context") or {}
        session_id = value_of(self._session_id, context) or context.get("session_id")
        if session_id is None:
            raise InvalidInput(
                'The run has no session. Pass hook_context={"session_id": ...} to the agent\'s '
                "run, or set the hook's `session_id`."
            )
        session = self._memory.session(session_id, value_of(self._user_id, context))
        messages: list[ChatMessage] = state.data["messages"]
        system = [message for message in messages if message.is_from(ChatRole.SYSTEM)]
        chat = [message for message in messages if not message.is_from(ChatRole.SYSTEM)]
        new = [message for message in chat if message.meta.get(_STORED) != session_id]
        session.update([{"raw": message.to_dict(), "format": HAYSTACK} for message in new])
        for message in new:
            message.meta[_STORED] = session_id
        newest = messages[-1] if messages else None
        if newest is None or (newest.is_from(ChatRole.ASSISTANT) and not newest.tool_calls):
            return  # the run has ended with an answer
        system = [message for message in system if _STORED not in message.meta]
        counter = self._memory.components.resources.counter
        spent = sum(counter.message(Message(role="system", content=item.text)) for item in system)
        room = max(1, self._memory.config.max_tokens - spent)
        items = session.get(max_tokens=room, format=HAYSTACK).to_messages()
        shown = [ChatMessage.from_dict(item) for item in items]
        for message in shown:
            message.meta[_STORED] = session_id
        state.set("messages", [*system, *shown], handler_override=replace_values)

    def to_dict(self) -> dict[str, Any]:
        raise ConfigError(
            "AgentMemoryHook cannot be serialized: it holds a database. Add it to the agent after "
            "loading it."
        )
