"""A memory, a chat store and a memory block for LlamaIndex that use an `AgentMemory`.

kept = AgentMemoryMemory.from_defaults(memory=memory, session_id="chat-1", user_id="ana")
await agent.run("Where do I live?", memory=kept)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from agent_memory.core.formats import exact
from agent_memory.core.formats.registry import LLAMA_INDEX
from agent_memory.core.limits import MOST
from agent_memory.core.messages import Message
from agent_memory.core.records import Entry
from agent_memory.core.rendering import items_of
from agent_memory.engine.memory import AgentMemory
from agent_memory.engine.session import Session
from agent_memory.errors import ConfigError, MissingExtra
from agent_memory.integrations.adapting import threaded

try:
    from llama_index.core.base.llms.types import ChatMessage
    from llama_index.core.bridge.pydantic import PrivateAttr
    from llama_index.core.memory import BaseMemory, BaseMemoryBlock
    from llama_index.core.storage.chat_store.base import BaseChatStore
except ImportError as error:
    raise MissingExtra("LlamaIndex's memory", "llama-index") from error

__all__ = ["AgentMemoryBlock", "AgentMemoryChatStore", "AgentMemoryMemory"]


class AgentMemoryMemory(BaseMemory):
    """One session of a memory. `get` returns the session's context within the memory's budget."""

    session_id: str
    user_id: str | None = None
    _memory: AgentMemory | None = PrivateAttr(default=None)

    @classmethod
    def class_name(cls) -> str:
        return "AgentMemoryMemory"

    @classmethod
    def from_defaults(
        cls,
        memory: AgentMemory | None = None,
        session_id: str = "default",
        user_id: str | None = None,
        **kwargs: Any,
    ) -> AgentMemoryMemory:
        """Return a session of a memory. Other arguments of LlamaIndex are ignored."""
        session = cls(session_id=session_id, user_id=user_id)
        session._memory = memory
        return session

    def bound(self, memory: AgentMemory) -> AgentMemoryMemory:
        """Connect this object to a memory after deserialization: JSON does not contain a memory."""
        self._memory = memory
        return self

    def get(self, input: str | None = None, **kwargs: Any) -> list[ChatMessage]:
        """Return the context within the budget.

        Args:
            input: The question for recall; by default the user's newest message.
        """
        items = self._session.get(input, format=LLAMA_INDEX).to_messages()
        messages = [ChatMessage.model_validate(item) for item in items]
        if input and messages and _asks(messages[-1], input):
            newest = _messages(self._session.history(last=1))
            if not (newest and _asks(newest[-1], input)):
                return messages[:-1]  # LlamaIndex adds a question that is not stored yet
        return messages

    def get_all(self) -> list[ChatMessage]:
        return _messages(self._session.history())

    def put(self, message: ChatMessage) -> None:
        self._session.update(_storable(message))

    def put_messages(self, messages: list[ChatMessage]) -> None:
        """Append all messages, or none of them after an error."""
        if messages:
            self._session.update([_storable(message) for message in messages])

    aput_messages = threaded(put_messages)

    def set(self, messages: list[ChatMessage]) -> None:
        self._session.edit(lambda log: [_storable(message) for message in messages])

    def reset(self) -> None:
        self._session.delete()

    @property
    def _session(self) -> Session:
        if self._memory is None:
            raise ConfigError(
                "This session has no memory, because it was read from JSON. Call bound(memory) "
                "first."
            )
        return self._memory.session(self.session_id, self.user_id)


class AgentMemoryChatStore(BaseChatStore):
    """Lists of messages by key. Each list is a session of the memory.

    Attributes:
        user_id: The user of all lists.
        prefix: The beginning of each session id. The key follows it.
    """

    user_id: str | None = None
    prefix: str = ""
    _memory: AgentMemory = PrivateAttr()

    def __init__(self, memory: AgentMemory, **fields: Any) -> None:
        super().__init__(**fields)
        self._memory = memory

    @classmethod
    def class_name(cls) -> str:
        return "AgentMemoryChatStore"

    def set_messages(self, key: str, messages: list[ChatMessage]) -> None:
        self._of(key).edit(lambda log: [_storable(message) for message in messages])

    def get_messages(self, key: str) -> list[ChatMessage]:
        return _messages(self._of(key).history())

    def add_message(self, key: str, message: ChatMessage, idx: int | None = None) -> None:
        """Append a message, or insert it at the index `idx`."""
        if idx is None:
            self._of(key).update(_storable(message))
        else:
            self._of(key).edit(lambda log: [*log[:idx], _storable(message), *log[idx:]])

    def delete_messages(self, key: str) -> list[ChatMessage] | None:
        """Delete a list and return it; None if there is none."""
        session = self._of(key)
        if session.head() is None:
            return None
        held = _messages(session.history())
        session.delete()
        return held

    def delete_message(self, key: str, idx: int) -> ChatMessage | None:
        """Delete a message by its index and return it; None if there is none."""
        session, gone = self._of(key), list[Entry]()

        def change(log: list[Entry]) -> list[Entry]:
            gone[:] = log[idx : idx + 1] if idx >= 0 else []
            return [entry for entry in log if entry not in gone]

        if session.head() is not None:
            session.edit(change)
        return next(iter(_messages(gone)), None)

    def delete_last_message(self, key: str) -> ChatMessage | None:
        """Delete the newest message and return it; None if there is none."""
        popped = [item for message in self._of(key).pop(1) for item in _read(message)]
        return popped[0] if popped else None

    def get_keys(self) -> list[str]:
        heads = self._memory.sessions(user_id=self.user_id, prefix=self.prefix, limit=MOST)
        return [head.session_id.removeprefix(self.prefix) for head in heads if head.end]

    def _of(self, key: str) -> Session:
        return self._memory.session(self.prefix + key, self.user_id)


class AgentMemoryBlock(BaseMemoryBlock[str]):
    """A block for LlamaIndex's own `Memory`: stores messages, returns at most `limit` recalls."""

    user_id: str
    limit: int = 8
    _memory: AgentMemory = PrivateAttr()

    def __init__(self, memory: AgentMemory, **fields: Any) -> None:
        super().__init__(**{"name": "agent_memory", **fields})
        self._memory = memory

    @threaded
    def _aget(self, /, messages: list[ChatMessage] | None = None, **block_kwargs: Any) -> str:
        texts = [item.content for item in messages or () if item.role == "user" and item.content]
        if not texts:
            return ""
        recalls = self._memory.search(texts[-1], user_id=self.user_id, limit=self.limit)
        return "\n".join(f"- {recall}" for recall in recalls)

    @threaded
    def _aput(self, messages: list[ChatMessage]) -> None:
        by_session: dict[str, list[Message]] = {}
        for message in messages:
            fields = dict(message.additional_kwargs)
            session = str(fields.pop("session_id", None) or self.name)  # LlamaIndex sets it
            bare = message.model_copy(update={"additional_kwargs": fields})
            by_session.setdefault(session, []).append(_storable(bare))
        for session, items in by_session.items():
            self._memory.update(session, items, user_id=self.user_id)

    async def atruncate(self, content: str, tokens_to_truncate: int) -> str | None:
        """Drop the least relevant lines until `tokens_to_truncate` tokens are saved.

        Return None if no line is left.
        """
        counter = self._memory.components.resources.counter
        lines = content.splitlines()
        least = counter.text(content) - tokens_to_truncate
        while lines and counter.text("\n".join(lines)) > least:
            lines.pop()
        return "\n".join(lines) or None


def _asks(message: ChatMessage, question: str) -> bool:
    return bool(message.role == "user" and message.content == question)


def _storable(message: ChatMessage) -> Message:
    raw = message.model_dump(mode="json")
    if ChatMessage.model_validate(raw) != message:  # JSON would not restore the message
        raw = exact.written({**raw, "additional_kwargs": message.additional_kwargs})
    return Message(raw=raw, format=LLAMA_INDEX)


def _messages(log: Iterable[Entry]) -> list[ChatMessage]:
    """Return a log's messages as messages of LlamaIndex, converted if needed."""
    return [message for entry in log for message in _read(entry.message)]


def _read(message: Message) -> list[ChatMessage]:
    return [ChatMessage.model_validate(item) for item in items_of(message, LLAMA_INDEX)]
