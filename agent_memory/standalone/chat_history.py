"""`ChatHistory`: saves and loads lists of messages, without a budget and long-term memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Self

from pydantic import BaseModel

from agent_memory.config.settings import AgentMemoryConfig
from agent_memory.core.limits import check_id
from agent_memory.core.messages import Message
from agent_memory.core.token_counter import Tokenizer
from agent_memory.engine.append import drafts_of
from agent_memory.engine.assembly import Components
from agent_memory.errors import InvalidMessage, MemoryClosed
from agent_memory.stores.base import Durability, Store
from agent_memory.strategies.bounded import Trim


class ChatHistory:
    """The messages of sessions, saved and loaded as whole lists.

    An `AgentMemory` with the same store and namespace uses the same logs: it reads the messages,
    its blocks absorb them, and its `delete` and `delete_user` erase them. The history is
    thread-safe, and reads no environment variables. Use it as a context manager, or call `close`.

    Args:
        store: See `AgentMemoryConfig`. If you pass an open store, `close` does not close it.
        namespace: The namespace, if `store` is a URL.
        durability: See `AgentMemoryConfig`. None means the default of `AgentMemoryConfig`.
        model: A litellm model name, which selects the tokenizer. If an `AgentMemory` on the same
            store has the same model, it need not count the tokens again.
        tokenizer: As in `AgentMemoryConfig`.

    Raises:
        ConfigError: The kind of store is unknown, or an extra is missing.
        StoreError: The store cannot be opened.
    """

    def __init__(
        self,
        store: str | Store = "sqlite:///agent_memory.db",
        *,
        namespace: str = "default",
        durability: Durability | None = None,
        model: str | None = None,
        tokenizer: Tokenizer = "exact",
    ) -> None:
        config = AgentMemoryConfig.alone(
            store=store,
            namespace=namespace,
            **({} if durability is None else {"durability": durability}),
            model=model,
            tokenizer=tokenizer,
            overflow=Trim(),
            blocks=[],
        )
        self._components = components = Components(config)
        self._namespace = namespace
        self._store = components.store
        self._drafted = partial(drafts_of, counter=components.resources.counter)
        self._closed = False

    def __repr__(self) -> str:
        return f"ChatHistory(namespace={self._namespace!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def save(self, session_id: str, messages: Iterable[Any], *, user_id: str | None = None) -> None:
        """Replace all messages of a session atomically.

        Readers see either the old or the new list, even after a crash. If several callers save at
        the same time, the last caller's list replaces the others. Leading messages that are equal
        in the old and the new list stay, with the records derived from them.

        Args:
            session_id: The session.
            messages: The messages in order, each as for `AgentMemory.update`, or an empty list.
            user_id: The session's user. A session belongs to the first user that a call names.

        Raises:
            InvalidInput: An id or a message is invalid. Nothing was saved.
            SessionOfAnotherUser: The session belongs to another user.
            UnsupportedOperation: The list is empty, and an `AgentMemory` with a `retention` has
                removed messages of the session. Call `clear`.
            StoreError: The store failed. Nothing was saved.
        """
        self._check(session_id, user_id)
        if not isinstance(messages, Iterable) or isinstance(messages, str | Mapping | BaseModel):
            raise InvalidMessage("Pass a list: save replaces all messages of the session.")
        new = [message for item in messages for message in Message.all_of(item)]
        save = partial(self._components.editor.change, session_id, lambda log: new, user_id)
        self._components.deletion.retried(session_id, partial(save, self._drafted))

    def load(self, session_id: str) -> list[Message]:
        """Return the messages of a session, oldest first: an empty list if it does not exist.

        Raises:
            InvalidId: The id is invalid.
            StoreError: The store failed.
        """
        self._check(session_id, None)
        head = self._store.head(session_id)
        if head is None or head.deleting:
            return []
        return [entry.message for entry in self._store.read(session_id)]

    def clear(self, session_id: str) -> None:
        """Delete a session. Idempotent.

        Records that blocks derived from the session are deleted too, except in a block's own
        database.

        Raises:
            InvalidId: The id is invalid.
            StoreError: The store failed. Call `clear` again.
        """
        self._check(session_id, None)
        self._components.deletion.session(session_id)

    def close(self) -> None:
        """Release connections. Idempotent. Other calls raise `MemoryClosed` afterwards."""
        if not self._closed:
            self._closed = True
            self._components.close()

    def _check(self, session_id: str, user_id: str | None) -> None:
        if self._closed:
            raise MemoryClosed("This ChatHistory was closed. Open a new one.")
        check_id("session_id", session_id)
        if user_id is not None:
            check_id("user_id", user_id)
