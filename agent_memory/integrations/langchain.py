"""Middleware and a chat history for LangChain that use an `AgentMemory`."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from agent_memory.core.formats.registry import LANGCHAIN
from agent_memory.core.messages import Message
from agent_memory.core.records import Entry
from agent_memory.core.rendering import items_of
from agent_memory.engine.memory import AgentMemory
from agent_memory.engine.session import Session
from agent_memory.errors import InvalidInput, MissingExtra
from agent_memory.integrations.adapting import LONGEST_BRANCH, threaded, value_of
from agent_memory.ltm_blocks.base import record_id

try:
    from langchain.agents.middleware.types import AgentMiddleware, ModelRequest, ModelResponse
    from langchain_core.chat_history import BaseChatMessageHistory
    from langchain_core.messages import AnyMessage, BaseMessage, messages_from_dict
    from langgraph.runtime import Runtime
except ImportError as error:
    raise MissingExtra("LangChain's middleware and history", "langchain") from error

__all__ = ["AgentMemoryChatMessageHistory", "AgentMemoryMiddleware"]

IdSource = str | Callable[[Runtime[Any]], str | None] | None

_TOOL = re.compile(r"(.*\btools:[^|]*(?:\|\d+)?)\|")
"""The namespace of a node in an agent that a tool runs; the group is the namespace of this run."""


class AgentMemoryMiddleware(AgentMiddleware[Any, Any, Any]):
    """Gives an agent long-term memory of users and chats, within a token budget.

    Before each model call, the middleware stores the run's new messages. The model gets the
    session's context instead of the request's messages: the newest messages within the budget, a
    summary of earlier messages, and recalls for the question. A retry stores nothing twice. The
    graph's own state does not change. If the graph changes a message, or continues from an earlier
    message, the log does too.

    Args:
        memory: The memory. Its settings control overflow and recall.
        user_id: The user: an id, or a function of LangGraph's `Runtime`, such as
            `lambda runtime: runtime.context.user_id`. Never use a model's output.
        session_id: The chat: an id, or a function of the `Runtime`. By default, it is the run's
            thread; if a tool runs the agent, "THREAD/NAMESPACE".
    """

    def __init__(
        self, memory: AgentMemory, *, user_id: IdSource = None, session_id: IdSource = None
    ) -> None:
        super().__init__()
        self.tools = []
        self._memory = memory
        self._user_id = user_id
        self._session_id = session_id

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        return handler(self._with_context(request))

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ModelResponse[Any]:
        return await handler(await asyncio.to_thread(self._with_context, request))

    def after_agent(self, state: Any, runtime: Runtime[Any]) -> dict[str, Any] | None:
        self._store(state["messages"], runtime)
        return None

    aafter_agent = threaded(after_agent)  # pyright: ignore[reportAssignmentType]

    def _with_context(self, request: ModelRequest[Any]) -> ModelRequest[Any]:
        session = self._store(request.state["messages"], request.runtime)
        room = self._memory.config.max_tokens
        if request.system_message is not None:
            counter = self._memory.components.resources.counter
            (system,) = from_langchain([request.system_message])
            room = max(1, room - counter.message(Message.of(system)))
        context = session.get(max_tokens=room, format=LANGCHAIN)
        messages: list[AnyMessage] = _read(context.to_messages())  # type: ignore[assignment]
        return request.override(messages=messages)

    def _store(self, messages: Sequence[BaseMessage], runtime: Runtime[Any]) -> Session:
        user_id = value_of(self._user_id, runtime)
        session_id, info = value_of(self._session_id, runtime), runtime.execution_info
        if session_id is None and info is not None and info.thread_id is not None:
            within = _TOOL.match(info.checkpoint_ns)
            session_id = f"{info.thread_id}/{within[1]}" if within else info.thread_id
        if session_id is None:
            raise InvalidInput(
                "The run has no thread. Give a thread_id in its config's "
                '"configurable", with a checkpointer, or set the middleware\'s `session_id`.'
            )
        session = self._memory.session(session_id, user_id)
        rows = [_row(item) for item in messages if not _is_summary(item)]
        last = _cut_to_branch(session, rows)
        session.update(rows)
        if last is not None:
            added = [_id(entry) for entry in session.history(after=last.seq)]
            ids = [row["raw"]["id"] for row in rows]
            if _id(last) in added or added != ids[len(ids) - len(added) :]:
                _put_in_place(session)
        return session


def _row(message: BaseMessage) -> dict[str, Any]:
    """Convert a message for `update`. A changed message gets another id."""
    (row,) = from_langchain([message])
    return {**row, "id": record_id(json.dumps(row["raw"], sort_keys=True, default=str))}


def _is_summary(message: BaseMessage) -> bool:
    return message.additional_kwargs.get("lc_source") == "summarization"


def _id(entry: Entry) -> str | None:
    """Return LangChain's id of a message; None for a message from another source."""
    message = entry.message
    return (message.raw or {}).get("id") if message.format == LANGCHAIN else None


def _cut_to_branch(session: Session, rows: Sequence[dict[str, Any]]) -> Entry | None:
    """Remove the log's messages after the one that the graph continues. Return the last entry."""
    newest, ids = session.history(last=1), [row["raw"]["id"] for row in rows]
    if not newest or not rows or _id(newest[0]) in ids:
        return newest[0] if newest else None
    log = session.history(last=LONGEST_BRANCH)
    names = [_id(entry) for entry in log]
    count = next((place for place, name in enumerate(reversed(names)) if name in ids), 0)
    # a run with other new messages may be concurrent, and without a checkpointer
    continues = rows[-1]["raw"]["type"] == "human" or ids[-1] in names
    if not continues or None in names[len(names) - count :]:
        return newest[0]
    session.pop(count)
    return log[len(log) - count - 1]


def _put_in_place(session: Session) -> None:
    """Replace messages that have a newer version at the end of the log by this version."""
    log = session.history(last=LONGEST_BRANCH)
    newest = {_id(entry) or entry.seq: entry.message for entry in log}
    names = [_id(entry) or entry.seq for entry in log]
    changed = (newest[name] is not entry.message for name, entry in zip(names, log, strict=True))
    first = next((place for place, is_old in enumerate(changed) if is_old), None)
    if first is not None:
        session.pop(len(log) - first)  # an edit would not store the ids for later updates
        session.update([newest[name] for name in dict.fromkeys(names[first:])])


class AgentMemoryChatMessageHistory(BaseChatMessageHistory):
    """One session's messages, for `RunnableWithMessageHistory`.

    LangChain has deprecated such histories. For agents, use the middleware.

    Args:
        recalled: Whether `messages` returns the session's context instead of all messages. The
            context has recalls and fits the budget.
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
        """The messages or the context, oldest first."""
        if self._recalled:
            return _read(self._session.get(format=LANGCHAIN).to_messages())
        return to_langchain([entry.message for entry in self._session.history()])

    def add_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Store all messages, or none after an error. Messages with stored ids are skipped."""
        if messages:
            self._session.update(from_langchain(messages))

    def clear(self) -> None:
        self._session.delete()


def from_langchain(messages: Sequence[BaseMessage]) -> list[dict[str, Any]]:
    """Convert LangChain's messages to dicts for `update`. `to_langchain` restores the messages.

    A tool's `artifact` is also stored. Values that JSON cannot express may become text.
    """
    return [
        {"raw": item.model_dump(), "format": LANGCHAIN, **({"id": item.id} if item.id else {})}
        for item in messages
    ]


def to_langchain(messages: Sequence[Message]) -> list[BaseMessage]:
    """Convert a log's messages of any format to LangChain's messages."""
    return _read([item for message in messages for item in items_of(message, LANGCHAIN)])


def _read(items: Sequence[dict[str, Any]]) -> list[BaseMessage]:
    """Build LangChain's messages from the results of their `model_dump`."""
    return messages_from_dict([{"type": item["type"], "data": item} for item in items])
