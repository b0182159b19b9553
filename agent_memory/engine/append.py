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
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from agent_memory.core.messages import Message
from agent_memory.core.once import (
    KeptKey,
    Once,
    WriteKey,
    check_end,
    key_of,
    key_of_import,
    key_of_message,
)
from agent_memory.core.processes import begin_anew_in_child
from agent_memory.core.records import Draft
from agent_memory.errors import MessageTooLarge

if TYPE_CHECKING:
    from agent_memory.config.settings import KeepKeys
    from agent_memory.core.records import Head
    from agent_memory.core.tokens.counter import TokenCounter
    from agent_memory.engine.windows import Windows
    from agent_memory.stores.base import SessionStore

_SHORT = 4_000  # characters; longer texts are better counted side by side
_WIDEST = 6  # bytes of a character in JSON
_FRAME = 2_000  # bytes of a flat message beside its content, names apart


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
        self._lock = threading.RLock()  # a signal's handler may append meanwhile

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
        max_message_bytes: What one message may have, as JSON.
        keep_keys: How long keys are known.
    """

    def __init__(
        self,
        store: SessionStore,
        counter: TokenCounter,
        gate: Gate,
        windows: Windows,
        max_message_bytes: int,
        keep_keys: KeepKeys,
    ) -> None:
        self._store = store
        self._counter = counter
        self._gate = gate
        self._windows = windows
        self._max_message_bytes = max_message_bytes
        self._keep_keys: KeepKeys = keep_keys

    def append(
        self,
        session_id: str,
        given: Sequence[Any],
        user_id: str | None,
        key: WriteKey | str | None = None,
        expected_end: int | None = None,
    ) -> tuple[Head, KeptKey | None]:
        """Append messages, all of them or none; see `AgentMemory.update`.

        Returns:
            The head as it is now; and where all was appended before, what is kept of that.
        """
        with self._gate.turn(given):
            drafts = self.drafts(given)
            if key is None and expected_end is None and not _have_ids(drafts):
                head = self._store.append(session_id, drafts, user_id)
                self._windows.appended(head, drafts)
                return head, None
            once = self._terms([draft.message for draft in drafts], key, expected_end)
            done = self._store.append_once(session_id, drafts, once, user_id)
            if done.places:
                self._windows.appended(done.head, [drafts[place] for place in done.places])
            return done.head, done.before

    def bring(
        self, session_id: str, given: Sequence[tuple[str, Message]], user_id: str | None
    ) -> int:
        """Append messages that come from elsewhere, each with what it is known by there: those that
        are new, all of them or none. Such a name is known for as long as its key is kept.

        Returns:
            How many were new.
        """
        drafts = self.drafts([message for _, message in given])
        ids = tuple(key_of_import(*one) for one in given)
        once = Once(ids=ids, at=datetime.now(UTC))
        done = self._store.append_once(session_id, drafts, once, user_id)
        if done.places:
            self._windows.appended(done.head, [drafts[place] for place in done.places])
        return len(done.places)

    def stored(self, session_id: str, key: WriteKey) -> list[Message] | None:
        """The messages that were stored under a key, as far as the log has them; None where it is
        not known.

        Raises:
            Conflict: The key was used for other content.
        """
        once = Once(key=key, since=self._since(datetime.now(UTC)))
        found = {one.name: one for one in self._store.keys(session_id, once.names)}
        kept = once.chosen(1, 0, found).before
        if kept is None:
            return None
        log = self._store.read(session_id, after=kept.seq - 1, limit=kept.end - kept.seq + 1)
        return [entry.message for entry in log]

    def _since(self, now: datetime) -> datetime | None:
        return None if self._keep_keys == "forever" else now - self._keep_keys

    def _terms(
        self, messages: Sequence[Message], key: WriteKey | str | None, expected_end: int | None
    ) -> Once:
        """On what terms to append.

        Raises:
            InvalidInput: The key or the end is not usable.
        """
        if expected_end is not None:
            check_end(expected_end)
        now = datetime.now(UTC)
        return Once(
            key=None if key is None else key_of(key, messages),
            ids=tuple(map(key_of_message, messages)),
            expected_end=expected_end,
            at=now,
            since=self._since(now),
        )

    def drafts(self, given: Sequence[Any]) -> list[Draft]:
        """What is to be appended.

        Raises:
            InvalidMessage: One of them is no message.
            MessageTooLarge: One of them is larger than `max_message_bytes`.
        """
        messages = [one for each in given for one in Message.all_of(each)]
        check_size(messages, self._max_message_bytes)
        return drafts_of(messages, self._counter)


def _have_ids(drafts: Sequence[Draft]) -> bool:
    for draft in drafts:  # in this order: nearly all messages have nothing extra
        extra = draft.message.model_extra
        if extra and key_of_message(draft.message) is not None:
            return True
    return False


def drafts_of(messages: Sequence[Message], counter: TokenCounter) -> list[Draft]:
    """Messages with what they cost."""
    count, encoding = counter.message, counter.encoding
    return [Draft(message, count(message), encoding) for message in messages]


def check_size(messages: Sequence[Message], most: int) -> None:
    """Refuse messages of which one is larger than any may be.

    Args:
        messages: What is to be appended.
        most: Bytes of one, as JSON.

    Raises:
        MessageTooLarge: One is larger.
    """
    for message in messages:
        content = message.content
        if type(content) is str and len(content) * _WIDEST < most - _FRAME and message.is_flat:
            continue  # so that no short text is made JSON twice
        size = len(message.to_json().encode())
        if size > most:
            raise MessageTooLarge(
                f"A message has {size:,} bytes as JSON, above max_message_bytes={most:,}. Nothing "
                "was stored. Split it, or raise max_message_bytes."
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
