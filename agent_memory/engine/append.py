"""Append messages to a session, with checks, idempotency and redaction.

Short messages go through a queue: one thread appends the messages of waiting threads in batches.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeAlias, TypeVar

from agent_memory.core.idempotency import (
    Append,
    Appended,
    Idempotency,
    KeyRecord,
    WriteKey,
    check_end,
    key_of,
    key_of_import,
    key_of_message,
)
from agent_memory.core.messages import Message
from agent_memory.core.processes import begin_anew_in_child, checked_lock, is_own
from agent_memory.core.records import Draft, Head
from agent_memory.core.redaction import redacted
from agent_memory.engine.paging import range_of, still_exists
from agent_memory.errors import MessageTooLarge, StoreUnavailable

if TYPE_CHECKING:
    from agent_memory.core.token_counter import TokenCounter
    from agent_memory.engine.assembly import Components

_SHORT = 4_000  # characters; longer texts skip the queue and are tokenized in parallel
_WIDEST = 6  # the most bytes of one character in JSON
_FRAME = 2_000  # the most bytes of a flat message in JSON, without its content


class Update(NamedTuple):
    """The arguments of `AgentMemory.update`. `own` refuses an existing session without an owner."""

    session_id: str
    messages: Sequence[Any]
    user_id: str | None
    key: WriteKey | str | None = None
    expected_end: int | None = None
    own: bool = False


_Stored: TypeAlias = tuple[Head, KeyRecord | None]
"""The head after an append. For a retry, also the stored key of the first append."""


class Appender:
    def __init__(self, parts: Components) -> None:
        self._store, self._windows, self._config = parts.store, parts.windows, parts.config
        self._counter, self._zones = parts.resources.counter, parts.resources.zones
        self._within = parts.work.within
        # a remote store serves concurrent appends itself
        is_remote = self._store.remote
        self._queue = None if is_remote else AppendQueue(self._append, self.append_all)

    def append(self, update: Update) -> _Stored:
        """Append messages atomically. A single short message goes through the queue."""
        if self._queue is not None and is_brief(update.messages):
            return self._queue.run(update)
        return self._append(update)

    def _append(self, update: Update) -> _Stored:
        session_id, drafts, user_id, terms, _, within = self._request(update)
        if terms is None:
            head = self._store.append(session_id, drafts, user_id, within=within)
            self._windows.appended(head, drafts)
            return head, None
        stored = self._store.append_idempotent(session_id, drafts, terms, user_id, within=within)
        return self._record(drafts, stored)

    def append_all(
        self,
        updates: Sequence[Update],
        accepted: Callable[[Update], Update] = lambda update: update,
    ) -> list[_Stored | Exception]:
        """Append the updates of several callers, in one transaction if possible.

        `accepted` returns the update to store, or raises an error. For each update, in order,
        return the result of `append` or the error.
        """
        requests: dict[int, Append] = {}
        results: dict[int, _Stored | Exception] = {}
        for place, update in enumerate(updates):
            try:
                requests[place] = self._request(accepted(update))
            except Exception as error:  # noqa: BLE001 - a bad message must not stop other messages
                results[place] = error
        done = self._store.append_all(list(requests.values()))
        for (place, append), result in zip(requests.items(), done, strict=True):
            results[place] = (
                result if isinstance(result, Exception) else self._record(append.drafts, result)
            )
        return [results[place] for place in range(len(updates))]

    def _request(self, update: Update) -> Append:
        """Check an update and return the request for the store."""
        session_id, messages, user_id, key, expected_end, own = update
        drafts = self.drafts(messages, session_id, user_id)
        within = self._within(drafts[-1].message.created_at) if drafts else 0.0
        # `extra` is checked first, because nearly all messages have none
        has_ids = any(map(key_of_message, (d.message for d in drafts if d.message.model_extra)))
        if key is None and expected_end is None and not has_ids:
            return Append(session_id, drafts, user_id, None, own, within)
        if expected_end is not None:
            check_end(expected_end)
        now, checked = datetime.now(UTC), [draft.message for draft in drafts]
        terms = Idempotency(
            key=None if key is None else key_of(key, checked),
            ids=tuple(map(key_of_message, checked)),
            expected_end=expected_end,
            at=now,
            since=self._since(now),
        )
        return Append(session_id, drafts, user_id, terms, own, within)

    def _record(self, drafts: Sequence[Draft], result: Appended) -> _Stored:
        if result.places:
            self._windows.appended(result.head, [drafts[place] for place in result.places])
        return result.head, result.before

    def bring(
        self, session_id: str, messages: Sequence[tuple[str, Message]], user_id: str | None
    ) -> int:
        """Append imported messages atomically, and return the number of new messages.

        Each message comes with its id in the source. A message whose id was imported before is
        skipped.
        """
        drafts = self.drafts([message for _, message in messages], session_id, user_id)
        ids = tuple(key_of_import(*pair) for pair in messages)
        terms = Idempotency(ids=ids, at=datetime.now(UTC))
        done = self._store.append_idempotent(session_id, drafts, terms, user_id)
        self._record(drafts, done)
        return len(done.places)

    def stored(self, head: Head, key: WriteKey) -> list[Message] | None:
        """Return the messages that were stored under a key, if they are still in the log.

        Return None if the key is unknown or the session is gone. Raise `Conflict` if the key was
        used for other content.
        """
        terms = Idempotency(key=key, since=self._since(datetime.now(UTC)))
        keys = {row.name: row for row in self._store.keys(head.session_id, terms.names)}
        if not keys or not still_exists(self._store, head):
            return None
        stored_key = terms.chosen(1, 0, keys).before
        if stored_key is None:
            return None
        log = range_of(self._store, head, stored_key.seq - 1, stored_key.end)
        return [entry.message for entry in log]

    def _since(self, now: datetime) -> datetime | None:
        duration = self._config.keep_keys
        return None if duration == "forever" else now - duration

    def drafts(self, messages: Sequence[Any], session_id: str, user_id: str | None) -> list[Draft]:
        """Return messages in any form as drafts: parsed, redacted, with their token counts."""
        if self._zones.by_user and user_id is None:
            head = self._store.head(session_id)
            user_id = head.user_id if head is not None else None
        zone = self._zones.of(user_id)
        messages = [message for value in messages for message in Message.all_of(value, zone)]
        for message in messages:
            check_size(message, self._config.max_message_bytes)
        return drafts_of(messages, self._counter, self._config.redact)


def drafts_of(
    messages: Sequence[Message], counter: TokenCounter, redact: Callable[[str], str] | None = None
) -> list[Draft]:
    """Return the messages to store, redacted, with their token counts."""
    if redact is not None:
        messages = [redacted(message, redact) for message in messages]
    count, encoding = counter.message, counter.encoding
    return [Draft(message, count(message), encoding) for message in messages]


def check_size(message: Message, most: int) -> None:
    """Raise `MessageTooLarge` if a message has more than `most` bytes as JSON."""
    content = message.content
    if type(content) is str and len(content) * _WIDEST < most - _FRAME and message.is_flat:
        return  # a short text need not be encoded
    size = len(message.to_json().encode())
    if size > most:
        raise MessageTooLarge(
            f"A message has {size:,} bytes as JSON, above max_message_bytes={most:,}. Nothing "
            "was stored. Split the message, or raise max_message_bytes."
        )


def is_brief(messages: Sequence[Any]) -> bool:
    """Return whether `messages` is one short message without tool calls, in a simple form."""
    if len(messages) != 1:
        return False
    message, content = messages[0], None
    if type(message) is Message:
        content = message.content
    elif type(message) is dict and "tool_calls" not in message:
        content = message.get("content")
    return type(content) is str and len(content) <= _SHORT


J = TypeVar("J")
T = TypeVar("T")

_MOST = 32
"""The maximum number of calls in one batch. Every call waits until its whole batch is done."""

_CUT_OFF = (
    "The thread that wrote this message in a batch was interrupted: the message may be stored. "
    "Read the session's log, or retry with the same key."
)


@dataclass(eq=False, slots=True)
class _Pending(Generic[J, T]):
    """A pending call. Its outcome is None until the call has run."""

    job: J
    outcome: T | Exception | None = None
    wakes: SimpleQueue[None] = field(default_factory=SimpleQueue)


class AppendQueue(Generic[J, T]):
    """Runs short calls one at a time. Calls that wait at the same time run as one batch.

    A signal handler may raise an exception in the main thread at any time. The main thread
    therefore runs only its own call, so that no other thread's call is lost.
    """

    def __init__(
        self, make: Callable[[J], T], make_all: Callable[[Sequence[J]], Sequence[T | Exception]]
    ) -> None:
        self._make = make
        self._make_all = make_all
        self._begin_anew()
        begin_anew_in_child(self, AppendQueue._begin_anew)

    def _begin_anew(self) -> None:
        self._main = threading.main_thread().ident
        self._lock = checked_lock()  # a signal handler may append while the lock is held
        self._pending: list[_Pending[J, T]] = []

    def run(self, job: J) -> T:
        """Run a call, alone or in a batch, and return its result."""
        lock = self._lock
        if threading.get_ident() == self._main or is_own(lock):
            with lock:
                return self._make(job)
        # the fast path: no call is pending
        if not self._pending and lock.acquire(blocking=False):
            try:
                return self._make(job)
            finally:
                lock.release()
        pending = _Pending[J, T](job)
        self._pending.append(pending)
        # Only the thread of the first pending call waits for the lock. If all waited for it, those
        # whose calls have run would get the lock in turn, and keep the next batch small.
        if self._pending[:1] != [pending]:
            pending.wakes.get()
        if pending.outcome is None:
            with lock:
                while pending.outcome is None:
                    self._lead()
        if isinstance(pending.outcome, Exception):
            raise pending.outcome
        return pending.outcome

    def _lead(self) -> None:
        calls = self._pending[:_MOST]
        del self._pending[: len(calls)]
        for first in self._pending[:1]:  # its thread believes that another call is the first
            first.wakes.put(None)
        try:
            for call, outcome in zip(calls, self._outcomes(calls), strict=True):
                call.outcome = outcome
        finally:
            for call in calls:
                if call.outcome is None:
                    call.outcome = StoreUnavailable(_CUT_OFF)
                call.wakes.put(None)

    def _outcomes(self, calls: Sequence[_Pending[J, T]]) -> Sequence[T | Exception]:
        if len(calls) > 1:
            return self._make_all([call.job for call in calls])
        try:
            return [self._make(call.job) for call in calls]
        except Exception as error:  # noqa: BLE001 - the thread of the call raises it
            return [error]
