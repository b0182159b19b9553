"""LlamaIndex's memory, chat store and memory block over a memory.

    kept = AgentMemoryMemory.from_defaults(memory=memory, session_id="chat-1", user_id="ana")
await agent.run("Where do I live?", memory=kept)
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from agent_memory.core.formats import exact
from agent_memory.core.formats.registry import LLAMA_INDEX
from agent_memory.core.messages import Message
from agent_memory.core.records import Entry
from agent_memory.engine.memory import AgentMemory
from agent_memory.engine.session import Session
from agent_memory.errors import ConfigError, MissingExtra

try:
    from llama_index.core.base.llms.types import ChatMessage
    from llama_index.core.bridge.pydantic import PrivateAttr
    from llama_index.core.memory import BaseMemory, BaseMemoryBlock
    from llama_index.core.storage.chat_store.base import BaseChatStore
except ImportError as error:
    raise MissingExtra("LlamaIndex's memory", "llama-index") from error

__all__ = ["AgentMemoryBlock", "AgentMemoryChatStore", "AgentMemoryMemory"]

_PAGE = 500


class AgentMemoryMemory(BaseMemory):
    """A chat within the memory's budget, with what is recalled of its user.

    `get` gives the context, `get_all` all that was said.

    Attributes:
        session_id: The session.
        user_id: Whose it is.
    """

    session_id: str
    user_id: str | None = None
    _memory: AgentMemory | None = PrivateAttr(default=None)

    @classmethod
    def class_name(cls) -> str:
        """The name under which it is serialized."""
        return "AgentMemoryMemory"

    @classmethod
    def from_defaults(
        cls,
        memory: AgentMemory | None = None,
        session_id: str = "default",
        user_id: str | None = None,
        **kwargs: Any,
    ) -> AgentMemoryMemory:
        """One of a memory's sessions.

        Args:
            memory: The memory.
            session_id: The session.
            user_id: Whose it is.
            **kwargs: LlamaIndex's own, which is for other memories.
        """
        made = cls(session_id=session_id, user_id=user_id)
        made._memory = memory
        return made

    def bound(self, memory: AgentMemory) -> AgentMemoryMemory:
        """The same session of a memory: after it was read from JSON, which holds none."""
        self._memory = memory
        return self

    def get(self, input: str | None = None, **kwargs: Any) -> list[ChatMessage]:
        """The context within the budget.

        Args:
            input: What to recall for; by default the newest thing that the user said.
            **kwargs: LlamaIndex's own; passed over.
        """
        told = self._session.get(input, format=LLAMA_INDEX).to_messages()
        found = [ChatMessage.model_validate(one) for one in told]
        if input and found and found[-1].role == "user" and found[-1].content == input:
            return found[:-1]  # the agent sends it itself
        return found

    def get_all(self) -> list[ChatMessage]:
        """All that was said."""
        return _messages(self._session.history())

    def put(self, message: ChatMessage) -> None:
        """Append a message."""
        self._session.update(_kept(message))

    def put_messages(self, messages: list[ChatMessage]) -> None:
        """Append messages, all or none."""
        if messages:
            self._session.update([_kept(one) for one in messages])

    async def aput_messages(self, messages: list[ChatMessage]) -> None:
        """As `put_messages`, on a thread."""
        await asyncio.to_thread(self.put_messages, messages)

    def set(self, messages: list[ChatMessage]) -> None:
        """Have the session consist of these messages."""
        self._session.edit(lambda log: _list(messages))

    def reset(self) -> None:
        """Delete the session."""
        self._session.delete()

    @property
    def _session(self) -> Session:
        if self._memory is None:
            raise ConfigError(
                "This session has no memory: JSON does not hold one. Call bound(memory) first."
            )
        return self._memory.session(self.session_id, self.user_id)


class AgentMemoryChatStore(BaseChatStore):
    """Lists of messages by key, each a session of the memory.

    Attributes:
        user_id: Whose they are.
        prefix: What their sessions' ids begin with, before the key.
    """

    user_id: str | None = None
    prefix: str = ""
    _memory: AgentMemory = PrivateAttr()

    def __init__(self, memory: AgentMemory, **fields: Any) -> None:
        super().__init__(**fields)
        self._memory = memory

    @classmethod
    def class_name(cls) -> str:
        """The name under which it is serialized."""
        return "AgentMemoryChatStore"

    def set_messages(self, key: str, messages: list[ChatMessage]) -> None:
        """Have a key's list be these messages."""
        self._of(key).edit(lambda log: _list(messages))

    def get_messages(self, key: str) -> list[ChatMessage]:
        """A key's list."""
        return _messages(self._of(key).history())

    def add_message(self, key: str, message: ChatMessage, idx: int | None = None) -> None:
        """Append a message, or insert it at a place."""
        if idx is None:
            self._of(key).update(_kept(message))
        else:
            self._of(key).edit(lambda log: [*log[:idx], _kept(message), *log[idx:]])

    def delete_messages(self, key: str) -> list[ChatMessage] | None:
        """Delete a list; what it held, or None where there was none."""
        session = self._of(key)
        if session.head() is None:
            return None
        held = _messages(session.history())
        session.delete()
        return held

    def delete_message(self, key: str, idx: int) -> ChatMessage | None:
        """Delete one message by its place; it, or None where there is none."""
        session, gone = self._of(key), list[Entry]()

        def change(log: list[Entry]) -> list[Entry]:
            gone[:] = log[idx : idx + 1] if idx >= 0 else []
            return [entry for entry in log if entry not in gone]

        if session.head() is not None:
            session.edit(change)
        return next(iter(_messages(gone)), None)

    def delete_last_message(self, key: str) -> ChatMessage | None:
        """Delete the newest message; it, or None where there is none."""
        popped = self._of(key).pop(1)
        return _message(popped[0]) if popped else None

    def get_keys(self) -> list[str]:
        """The keys that have lists."""
        keys: list[str] = []
        after = None
        while page := self._memory.sessions(
            user_id=self.user_id, prefix=self.prefix, limit=_PAGE, after=after
        ):
            keys += [head.session_id.removeprefix(self.prefix) for head in page if head.end]
            after = page[-1].session_id
        return keys

    def _of(self, key: str) -> Session:
        return self._memory.session(self.prefix + key, self.user_id)


class AgentMemoryBlock(BaseMemoryBlock[str]):
    """What a memory knows of a user, as a block of LlamaIndex's own `Memory`.

    Attributes:
        user_id: Whose memory.
        limit: How much it recalls at most.
    """

    user_id: str
    limit: int = 8
    _memory: AgentMemory = PrivateAttr()

    def __init__(self, memory: AgentMemory, **fields: Any) -> None:
        super().__init__(**{"name": "agent_memory", **fields})
        self._memory = memory

    async def _aget(self, messages: list[ChatMessage] | None = None, **block_kwargs: Any) -> str:
        said = [one.content for one in messages or () if one.role == "user" and one.content]
        if not said:
            return ""
        found = await asyncio.to_thread(
            self._memory.search, said[-1], user_id=self.user_id, limit=self.limit
        )
        return "\n".join(f"- {recall}" for recall in found)

    async def _aput(self, messages: list[ChatMessage]) -> None:
        by_session: dict[str, list[Message]] = {}
        for one in messages:
            given = dict(one.additional_kwargs)
            session = str(given.pop("session_id", None) or self.name)  # LlamaIndex puts it there
            bare = one.model_copy(update={"additional_kwargs": given})
            by_session.setdefault(session, []).append(_kept(bare))
        for session, kept in by_session.items():
            await asyncio.to_thread(self._memory.update, session, kept, user_id=self.user_id)

    async def atruncate(self, content: str, tokens_to_truncate: int) -> str | None:
        """Leave out what bears least, until so many tokens are saved."""
        counter = self._memory.components.services.resources.counter
        lines = content.splitlines()
        least = counter.text(content) - tokens_to_truncate
        while lines and counter.text("\n".join(lines)) > least:
            lines.pop()
        return "\n".join(lines) or None


def _list(messages: Sequence[ChatMessage]) -> list[Message]:
    return [_kept(one) for one in messages]


def _kept(message: ChatMessage) -> Message:
    raw = message.model_dump(mode="json")
    if ChatMessage.model_validate(raw) != message:  # JSON does not give it back
        raw = exact.written({**raw, "additional_kwargs": message.additional_kwargs})
    return Message(raw=raw, format=LLAMA_INDEX)


def _message(message: Message) -> ChatMessage | None:
    return next(iter(_messages_of(message)), None)


def _messages(entries: Sequence[Entry]) -> list[ChatMessage]:
    return [one for entry in entries for one in _messages_of(entry.message)]


def _messages_of(message: Message) -> list[ChatMessage]:
    """A message as LlamaIndex's; those of others as it would have said them."""
    from agent_memory.core.formats.llama_index import from_chat

    if message.format == LLAMA_INDEX and message.raw is not None:
        return [ChatMessage.model_validate(exact.read(message.raw))]
    return [ChatMessage.model_validate(raw) for view in message.views() for raw in from_chat(view)]
