"""`ChatHistory`: whole lists of messages, kept and given back. No budget, no long-term memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Self

from pydantic import BaseModel

from agent_memory.config.settings import AgentMemoryConfig
from agent_memory.core.ids import check_id
from agent_memory.core.messages import Message
from agent_memory.core.tokens.counter import Tokenizer
from agent_memory.engine.append import drafts_of
from agent_memory.engine.assembly import assemble
from agent_memory.errors import InvalidMessage, MemoryClosed
from agent_memory.stores.base import Durability, Store
from agent_memory.strategies.trim import Trim


class ChatHistory:
    """The messages of conversations, each saved and loaded as a whole.

    It is the same log as an `AgentMemory`'s over the same store and namespace: that shows what is
    saved here, its blocks absorb it, and its `delete` and `delete_user` erase it. Share one between
    threads; use it as a context manager, or call `close`. Nothing is read from the environment.

    Args:
        store: As in `AgentMemoryConfig`; a store that is open stays so.
        namespace: Whose sessions, where `store` is a URL.
        durability: What a save that has returned survives, see `AgentMemoryConfig`.
        model: A litellm model name that picks the tokenizer: the one that an `AgentMemory` over the
            same store has, so that it need not count anew.
        tokenizer: As in `AgentMemoryConfig`.

    Raises:
        ConfigError: No store is of that kind, or an extra is missing.
        StoreError: The store cannot be opened.
    """

    def __init__(
        self,
        store: str | Store = "sqlite:///agent_memory.db",
        *,
        namespace: str = "default",
        durability: Durability = "process",
        model: str | None = None,
        tokenizer: Tokenizer = "exact",
    ) -> None:
        config = AgentMemoryConfig.alone(
            store=store,
            namespace=namespace,
            durability=durability,
            model=model,
            tokenizer=tokenizer,
            overflow=Trim(),
        )
        self._components = components = assemble(config)
        self._namespace = namespace
        self._store = components.store
        self._drafted = partial(drafts_of, counter=components.services.resources.counter)
        self._closed = False

    def __repr__(self) -> str:
        return f"ChatHistory(namespace={self._namespace!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def save(self, session_id: str, messages: Iterable[Any], *, user_id: str | None = None) -> None:
        """Have a session consist of these messages, in place of all that it had, in one step.

        Readers see the former list or this one, and so does whoever comes after a crash. Of several
        that save at once the last one's list stands as it was given. Messages that are there
        already, from the first one on, stay as they are; so does what blocks derived from them.

        Args:
            session_id: The conversation.
            messages: In order, each as `AgentMemory.update` takes it. None are an empty history.
            user_id: The user it belongs to. A session belongs to the first user named for it.

        Raises:
            InvalidInput: An id or a message is not usable; nothing was saved.
            SessionOfAnotherUser: The session belongs to another user.
            UnsupportedOperation: The list is empty, and an `AgentMemory` with a `retention` has
                removed messages of the session: clear it.
            StoreError: The store failed; nothing was saved.
        """
        self._check(session_id, user_id)
        if not isinstance(messages, Iterable) or isinstance(messages, str | Mapping | BaseModel):
            raise InvalidMessage("Give a list of messages: save replaces all that a session has.")
        given = [one for each in messages for one in Message.all_of(each)]
        self._components.deletion.retried(
            session_id,
            lambda: self._components.editor.save(session_id, given, user_id, self._drafted),
        )

    def load(self, session_id: str) -> list[Message]:
        """The messages of a session, oldest first; none where there is no such session.

        Raises:
            InvalidId: The id is not usable.
            StoreError: The store failed.
        """
        self._check(session_id, None)
        head = self._store.head(session_id)
        if head is None or head.deleting:
            return []
        return [entry.message for entry in self._store.read(session_id)]

    def clear(self, session_id: str) -> None:
        """Delete a session, as `AgentMemory.delete` does without blocks. Idempotent.

        What blocks keep of it in this store goes too; what they keep elsewhere does not.

        Raises:
            InvalidId: The id is not usable.
            StoreError: The store failed; call it again.
        """
        self._check(session_id, None)
        self._components.deletion.session(session_id)

    def close(self) -> None:
        """Release connections. Idempotent; other calls raise `MemoryClosed` afterwards."""
        if not self._closed:
            self._closed = True
            self._components.close()

    def _check(self, session_id: str, user_id: str | None) -> None:
        if self._closed:
            raise MemoryClosed("This history was closed. Open a new ChatHistory.")
        check_id("session_id", session_id)
        if user_id is not None:
            check_id("user_id", user_id)
