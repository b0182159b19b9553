"""Appending to a session: what is refused, and what becomes of the rest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from inspect import signature
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from agent_memory.core.messages import Message
from agent_memory.core.once import (
    Append,
    Appended,
    KeptKey,
    Once,
    WriteKey,
    check_end,
    key_of,
    key_of_import,
    key_of_message,
)
from agent_memory.core.records import Draft
from agent_memory.core.redacting import redacted
from agent_memory.engine.gate import Gate
from agent_memory.engine.paging import is_there, read_of
from agent_memory.errors import MessageTooLarge
from agent_memory.stores.base import groups_appends

if TYPE_CHECKING:
    from agent_memory.config.settings import KeepKeys
    from agent_memory.core.records import Head
    from agent_memory.core.tokens.counter import TokenCounter
    from agent_memory.engine.windows import Windows
    from agent_memory.stores.base import SessionStore

_SHORT = 4_000  # characters; longer texts are better counted side by side
_WIDEST = 6  # bytes of a character in JSON
_FRAME = 2_000  # bytes of a flat message beside its content, names apart


class Update(NamedTuple):
    """What a caller gives; see `AgentMemory.update`, and `Append` for `own`."""

    session_id: str
    given: Sequence[Any]
    user_id: str | None
    key: WriteKey | str | None = None
    expected_end: int | None = None
    own: bool = False


_Stored: TypeAlias = tuple["Head", "KeptKey | None"]
"""The head after an append; and where all was appended before, what is kept of that."""


class Appender:
    """Appends what callers give.

    Args:
        store: The log.
        counter: Counts tokens.
        windows: What was read of the log.
        max_message_bytes: What one message may have, as JSON.
        keep_keys: How long keys are known.
        wait: In how many seconds to look at a session that a message of some time leaves nothing
            to do for; a store that does not take that has it looked at at once.
        redact: Takes out of texts what is not to be kept, if anything.
    """

    def __init__(
        self,
        store: SessionStore,
        counter: TokenCounter,
        windows: Windows,
        max_message_bytes: int,
        keep_keys: KeepKeys,
        wait: Callable[[datetime], float],
        redact: Callable[[str], str] | None = None,
    ) -> None:
        self._store = store
        self._wait = wait if "within" in signature(store.append).parameters else None
        self._counter = counter
        self._grouping = store if groups_appends(store) else None
        # with a server, all wait for answers at the same time
        self._gate = None if store.remote else Gate(self._append, self._append_all)
        self._windows = windows
        self._max_message_bytes = max_message_bytes
        self._keep_keys: KeepKeys = keep_keys
        self._redact = redact

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
        update = Update(session_id, given, user_id, key, expected_end)
        if self._gate is not None and is_brief(given):
            return self._gate.made(update)
        return self._append(update)

    def _append(self, update: Update) -> _Stored:
        asked = self._asked(update)
        within = {"within": asked.within} if asked.within else {}
        if asked.once is None:
            head = self._store.append(asked.session_id, asked.drafts, asked.user_id, **within)
            self._windows.appended(head, asked.drafts)
            return head, None
        done = self._store.append_once(
            asked.session_id, asked.drafts, asked.once, asked.user_id, **within
        )
        return self._done(asked, done)

    def append_all(
        self, updates: Sequence[Update], check: Callable[[str, str | None], None]
    ) -> list[_Stored | Exception] | None:
        """Append for several callers in one transaction, each as `append` does it; what is refused
        gives its error. None where the store has no such transactions: nothing was done.

        Args:
            updates: What they give.
            check: Refuses ids that are not usable.
        """
        return None if self._grouping is None else self._append_all(updates, check)

    def _append_all(
        self,
        updates: Sequence[Update],
        check: Callable[[str, str | None], None] = lambda session_id, user_id: None,
    ) -> list[_Stored | Exception]:
        store, asked = self._grouping, dict[int, Append]()
        found: dict[int, _Stored | Exception] = {}
        for place, update in enumerate(updates):
            try:
                check(update.session_id, update.user_id)
                if store is None:
                    found[place] = self._append(update)
                else:
                    asked[place] = self._asked(update)
            except Exception as error:  # noqa: BLE001 - whatever its messages are, the others go on
                found[place] = error
        done = [] if store is None else store.append_all(list(asked.values()))
        for (place, one), result in zip(asked.items(), done, strict=True):
            found[place] = result if isinstance(result, Exception) else self._done(one, result)
        return [found[place] for place in range(len(updates))]

    def _asked(self, update: Update) -> Append:
        """What to ask of the store.

        Raises:
            InvalidInput: A message, the key or the end is not usable.
        """
        session_id, given, user_id, key, expected_end, own = update
        drafts = self.drafts(given)
        if key is None and expected_end is None and not _have_ids(drafts):
            return Append(session_id, drafts, user_id, None, own, self._within(drafts))
        once = self._terms([draft.message for draft in drafts], key, expected_end)
        return Append(session_id, drafts, user_id, once, own, self._within(drafts))

    def _within(self, drafts: Sequence[Draft]) -> float:
        """In how many seconds to look at a session."""
        if not drafts or self._wait is None:
            return 0.0
        return self._wait(drafts[-1].message.created_at)

    def _done(self, asked: Append, done: Appended) -> tuple[Head, KeptKey | None]:
        if done.places:
            self._windows.appended(done.head, [asked.drafts[place] for place in done.places])
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

    def stored(self, head: Head, key: WriteKey) -> list[Message] | None:
        """The messages that were stored under a key, as far as the log has them; None where it is
        not known, or the session is gone.

        Raises:
            Conflict: The key was used for other content.
        """
        once = Once(key=key, since=self._since(datetime.now(UTC)))
        found = {one.name: one for one in self._store.keys(head.session_id, once.names)}
        if not found or not is_there(self._store, head):
            return None
        kept = once.chosen(1, 0, found).before
        if kept is None:
            return None
        log = read_of(self._store, head, after=kept.seq - 1, limit=kept.end - kept.seq + 1)
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
        messages: list[Message] = []
        for each in given:
            messages += Message.all_of(each)
        for message in messages:
            check_size(message, self._max_message_bytes)
        return drafts_of(messages, self._counter, self._redact)


def _have_ids(drafts: Sequence[Draft]) -> bool:
    for draft in drafts:  # in this order: nearly all messages have nothing extra
        extra = draft.message.model_extra
        if extra and key_of_message(draft.message) is not None:
            return True
    return False


def drafts_of(
    messages: Sequence[Message],
    counter: TokenCounter,
    redact: Callable[[str], str] | None = None,
) -> list[Draft]:
    """Messages as they are to be kept, with what they cost."""
    if redact is not None:
        messages = [redacted(message, redact) for message in messages]
    count, encoding = counter.message, counter.encoding
    return [Draft(message, count(message), encoding) for message in messages]


def check_size(message: Message, most: int) -> None:
    """Refuse a message that is larger than any may be.

    Args:
        message: What is to be appended.
        most: Its bytes, as JSON.

    Raises:
        MessageTooLarge: It is larger.
    """
    content = message.content
    if type(content) is str and len(content) * _WIDEST < most - _FRAME and message.is_flat:
        return  # so that no short text is made JSON twice
    size = len(message.to_json().encode())
    if size > most:
        raise MessageTooLarge(
            f"A message has {size:,} bytes as JSON, above max_message_bytes={most:,}. Nothing "
            "was stored. Split it, or raise max_message_bytes."
        )


def is_brief(given: Sequence[Any]) -> bool:
    """Whether it is one message, of a kind that runs no code of others, and little of ours."""
    if len(given) != 1:
        return False
    message = given[0]
    if type(message) is dict:
        content = message.get("content")
        plain = "tool_calls" not in message
    else:
        content = message.content if type(message) is Message else None
        plain = True
    return plain and type(content) is str and len(content) <= _SHORT
