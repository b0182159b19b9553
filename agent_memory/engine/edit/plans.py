"""Pure plans of edits to a session's log: removal, another answer, a new list, a redaction."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agent_memory.core.limits import check_callable
from agent_memory.core.messages import Message
from agent_memory.core.records import Draft, Entry, Head, Span
from agent_memory.core.redaction import redacted as as_redacted
from agent_memory.core.redaction import redacted_message
from agent_memory.core.window import begun_anew, ruled
from agent_memory.errors import InvalidInput, InvalidMessage, UnsupportedOperation
from agent_memory.stores.kernel.log import entries_after, entry_for_caller

Log = Callable[[int, int], Sequence[Entry]]
"""Returns a session's stored entries after the first seq, up to and including the second seq."""

Drafts = Callable[[Sequence[Message]], list[Draft]]
"""Returns drafts of messages, with their token counts."""

Redact = Callable[[str], str]
"""Returns a text without personal data and secrets."""


@dataclass(frozen=True, slots=True)
class LogEdit:
    before: Head  # the head for which the edit was planned
    after: Head  # the new head; the store sets its `end`, `total` and `version`
    end: int  # the last seq of the part of the log that stays
    entries: Sequence[Entry]  # the new entries after `end`
    taken: Sequence[Entry]  # the entries that leave the log
    # Blocks delete records that derive from entries after this seq. This seq is below `end` if
    # records of expired entries must be deleted too.
    since: int
    # names of blocks that absorb the session from the beginning, if they are not configured now, or
    # if the session gets a user
    anew: frozenset[str] = frozenset()
    # Whether `entries` are the old entries, redacted. Tombstones then stay unchanged.
    redacts: bool = False

    @property
    def only_adds(self) -> bool:
        """Whether all entries stay, so that no block has to delete anything."""
        return self.end == self.before.end

    @property
    def moved(self) -> list[tuple[Entry, Entry]]:
        """The taken entries whose messages stay in the log, each with its new entry."""
        places = defaultdict[str, list[Entry]](list)
        for entry in reversed(self.entries):
            places[entry.message.to_json()].append(entry)
        return [(old, same.pop()) for old in self.taken if (same := places[old.message.to_json()])]


Plan = Callable[[Head, Log], LogEdit | None]
"""Returns the edit for a session's current state, or None if nothing must change."""


def splice(
    head: Head, end: int, taken: Sequence[Entry], drafts: Sequence[Draft], log: Log
) -> LogEdit:
    """Return the edit that replaces `taken` with drafts. `taken` has all entries after `end`."""
    total = head.total - sum(entry.counted for entry in taken)
    entries = entries_after(head.session_id, end, total, drafts)
    after = head
    if any(draft.message.is_system for draft in drafts):
        after = ruled(head, drafts)
    elif any(entry.message.is_system for entry in taken):
        after = ruled(head, log(head.expired, end))
    if taken:
        after = window_before(after, end, log)
    return LogEdit(head, after, end, entries, taken, since=end)


def window_before(head: Head, end: int, log: Log) -> Head:
    """Return the head for a log cut after `end`. If the window becomes empty, begin a new one."""
    if head.start < end:
        return head
    first = log(head.expired, head.expired + 1)
    return begun_anew(head, first[0] if first else None)


def popped(count: int) -> Plan:
    """Return a plan that removes the newest messages."""

    def plan(head: Head, log: Log) -> LogEdit | None:
        least = head.expired + 1 if head.expired else 0  # an empty log would restart the seqs
        if head.end == least > 0 and count > 0:
            raise _never_empty(head)
        end = max(least, head.end - count)
        return splice(head, end, log(end, head.end), (), log) if end < head.end else None

    return plan


def answered(part: Span, question: Message, drafts: Sequence[Draft]) -> Plan:
    """Return a plan that replaces the answer to a question.

    `part` reaches from the question to the message that was the newest when `regenerate` was
    called. If the session has newer messages, the plan raises `InvalidInput`. System messages after
    the question stay, before the new answer.
    """

    def plan(head: Head, log: Log) -> LogEdit:
        still = [entry.message for entry in log(part.first - 1, part.first)]
        if head.end != part.last or still != [question]:
            raise InvalidInput(
                f"Session {part.session_id!r} has new messages since the call of regenerate(). "
                "Nothing was replaced; call it again."
            )
        taken = log(part.first, part.last)
        rules = [entry for entry in taken if entry.message.is_system]
        system_drafts = [Draft(entry.message, entry.tokens, entry.encoding) for entry in rules]
        edit = splice(head, part.first, taken, [*system_drafts, *drafts], log)
        # `rules` were not stored together, so they are not joined
        own = ruled(head, drafts) if any(draft.message.is_system for draft in drafts) else head
        after = replace(edit.after, system=own.system, system_tokens=own.system_tokens)
        return replace(edit, after=after)

    return plan


def _never_empty(head: Head) -> UnsupportedOperation:
    return UnsupportedOperation(
        f"Session {head.session_id!r} cannot be made empty: some of its messages expired, and new "
        "messages must continue their numbers. Delete the session instead (for a chat history, "
        "call `clear`)."
    )


def listed(
    messages: Sequence[Message], user_id: str | None, drafted: Drafts, redact: Redact | None = None
) -> Plan:
    """Return a plan that replaces a session's messages with a list of messages.

    Leading messages that are equal in the log and in the list, after `redact`, stay. Blocks forget
    the replaced messages and absorb the new messages. A session without a user gets `user_id`.
    """

    def plan(head: Head, log: Log) -> LogEdit | None:
        if head.expired and not messages:
            raise _never_empty(head)
        had = log(head.expired, head.end)
        same = agreeing(had, messages, redact)
        end = head.expired + same

        def read(after: int, upto: int) -> Sequence[Entry]:
            return had[after - head.expired : upto - head.expired]

        edit = splice(head, end, had[same:], drafted(messages[same:]), read)
        if user_id is not None and head.user_id is None:  # blocks absorb the log again
            after = replace(edit.after, user_id=user_id, cursors={})
            return replace(edit, after=after, anew=frozenset(head.cursors))
        if head.version and edit.only_adds and not edit.entries:
            return None
        anew = (name for name, cursor in head.cursors.items() if cursor > end)
        return replace(edit, anew=frozenset(anew))

    return plan


def changed(
    change: Callable[[list[Entry]], Iterable[Any]],
    user_id: str | None,
    drafted: Drafts,
    redact: Redact | None,
) -> Plan:
    """Return a plan that replaces a session's log with the result of a function. See `listed`."""
    check_callable("change", change)

    def plan(head: Head, log: Log) -> LogEdit | None:
        edited = change([entry_for_caller(entry) for entry in log(head.expired, head.end)])
        messages = [
            new.message if isinstance(new, Entry) else new for new in entries_and_messages(edited)
        ]
        return listed(messages, user_id, drafted, redact)(head, log)

    return plan


def entries_and_messages(value: object) -> list[Entry | Message]:
    if not isinstance(value, Iterable) or isinstance(value, str | Mapping):
        raise InvalidMessage("Return a list of entries or messages: the whole new log.")
    return [
        each for raw in value for each in ([raw] if isinstance(raw, Entry) else Message.all_of(raw))
    ]


def agreeing(log: Sequence[Entry], messages: Sequence[Message], redact: Redact | None) -> int:
    """Return how many leading messages are equal in a log and a list. Times are ignored.

    The messages of the list are compared as they would be stored, after `redact`.
    """
    for count, (entry, message) in enumerate(zip(log, messages, strict=False)):
        if redact is not None:
            message = as_redacted(message, redact)
        if entry.message.to_json() != message.to_json():
            return count
    return min(len(log), len(messages))


def redacted(
    head: Head, log: Log, matches: Callable[[Message | None], bool], noted: int | None
) -> LogEdit | None:
    """Return the edit that empties all messages of an author. None if the author wrote none.
    `matches` returns whether the author wrote a message. `noted` is the seq of the author's first
    message, which may have expired; None if it is unknown.
    """
    had = log(head.expired, head.end)
    seqs = [entry.seq for entry in had if matches(entry.message)]
    if noted is not None and noted <= head.expired:  # expired messages of the author count too
        seqs = [noted, *seqs]
    if not seqs and matches(head.system):  # the seq of the system message is unknown
        seqs = [1]
    if not seqs:
        return None
    first, after = seqs[0], head
    end = max(first - 1, head.expired)
    if matches(head.system):
        after = ruled(after, [entry for entry in had if not matches(entry.message)])
    if head.summary is not None and head.summary.upto >= first and had:
        after = begun_anew(after, had[0])
    entries = [entry for entry in had if entry.seq > end]
    for at, entry in enumerate(entries):
        if matches(entry.message):  # totals stay; without an encoding, contexts count again
            message = redacted_message(entry.message)
            entries[at] = replace(entry, message=message, tokens=entry.counted, encoding="")
    return LogEdit(head, after, end, entries, (), since=first - 1, redacts=True)
