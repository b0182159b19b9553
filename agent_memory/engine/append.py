"""Appending to a session: who waits, what is refused, and what becomes of the rest.

Threads that append to a database in this process do it one after another. Each call into C (a
tokenizer, SQLite) lets go of the interpreter for some microseconds. Where other threads wait to
take it meanwhile, getting it back takes longer than the call. Threads that wait at a gate don't:
eight of them append a quarter more in the same time.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from agent_memory.core.messages import Message
from agent_memory.core.processes import begin_anew_in_child
from agent_memory.core.records import Draft
from agent_memory.errors import MessageTooLarge

if TYPE_CHECKING:
    from agent_memory.core.records import Head
    from agent_memory.core.tokens.counter import TokenCounter
    from agent_memory.engine.windows import Windows
    from agent_memory.stores.base import SessionStore

_SPARE = 8
"""A system message must leave one part in so many of the budget to the conversation."""
_SHORT = 4_000  # characters; longer texts are better counted side by side


class Gate:
    """Lets one thread through at a time, where that is faster.

    Args:
        closed: Whether it is: with a server, all wait for answers at the same time.
    """

    def __init__(self, *, closed: bool) -> None:
        self._closed = closed
        self._begin_anew()
        begin_anew_in_child(self, Gate._begin_anew)

    def _begin_anew(self) -> None:
        self._lock = threading.Lock()

    def turn(self, given: Sequence[Any]) -> AbstractContextManager[object]:
        """Held while messages, as they were given, are made ready and appended."""
        alone = self._closed and len(given) == 1 and _is_short_text(given[0])
        return self._lock if alone else nullcontext()


class Appender:
    """Appends what callers give.

    Args:
        store: The log.
        counter: Counts tokens.
        gate: Lets threads through.
        windows: What was read of the log.
        room: Tokens of a context.
    """

    def __init__(
        self, store: SessionStore, counter: TokenCounter, gate: Gate, windows: Windows, room: int
    ) -> None:
        self._store = store
        self._counter = counter
        self._gate = gate
        self._windows = windows
        self._room = room - counter.overhead

    def append(self, session_id: str, given: Sequence[Any], user_id: str | None) -> Head:
        """Append messages, all of them or none; see `AgentMemory.update`."""
        with self._gate.turn(given):
            drafts = self.drafts(session_id, given)
            head = self._store.append(session_id, drafts, user_id)
            self._windows.appended(head, drafts)
            return head

    def drafts(self, session_id: str, given: Sequence[Any]) -> list[Draft]:
        """What is to be appended.

        Raises:
            InvalidMessage: One of them is no message.
            MessageTooLarge: One of them could never fit.
        """
        count, encoding = self._counter.message, self._counter.encoding
        messages = [Message.of(one) for one in given]
        drafts = [Draft(message, count(message), encoding) for message in messages]
        if not fit_anyhow(drafts, self._room):
            head = self._store.head(session_id)
            check_size(drafts, head.system_tokens if head else 0, self._room)
        return drafts


def fit_anyhow(drafts: Sequence[Draft], room: int) -> bool:
    """Whether drafts are so small that `check_size` lets them pass beside any system message."""
    return all(draft.tokens <= room // _SPARE for draft in drafts)


def check_size(drafts: Sequence[Draft], system_tokens: int, room: int) -> None:
    """Refuse drafts of which one could never be shown, alone or beside the system message.

    Args:
        drafts: What is to be appended.
        system_tokens: Size of the session's system message.
        room: Tokens of a context, its overhead taken off.

    Raises:
        MessageTooLarge: One is too large.
    """
    turn = max((draft.tokens for draft in drafts if not draft.message.is_system), default=0)
    systems = (draft.tokens for draft in drafts if draft.message.is_system)
    system = max(systems, default=system_tokens)
    spare = room // _SPARE
    if system > room - spare or turn + system > room:
        raise MessageTooLarge(
            f"A message of {turn or system} tokens beside a system message of {system} can never "
            f"fit: the budget has room for {room}, of which a system message must leave {spare}. "
            "Nothing was stored. Shorten the message, or raise max_tokens."
        )


def _is_short_text(message: Any) -> bool:
    """Whether it is of a kind that runs no code of others, and little of ours."""
    if type(message) is dict:
        content = message.get("content")
        plain = "tool_calls" not in message
    else:
        content = message.content if type(message) is Message else None
        plain = True
    return plain and type(content) is str and len(content) <= _SHORT
