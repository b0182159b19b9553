"""What an edit makes of a session's log: a pop, another answer, another list, a redaction.

Pure: a plan reads the log through what it is given for that, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agent_memory.core.limits import check_callable
from agent_memory.core.messages import Message
from agent_memory.core.records import Draft, Entry, Head, Span
from agent_memory.core.redacted import redacted_message
from agent_memory.core.window import begun_anew, ruled
from agent_memory.errors import (
    InvalidInput,
    InvalidMessage,
    UnsupportedOperation,
)
from agent_memory.stores.log import entries_after, entry_for_caller

Log = Callable[[int, int], Sequence[Entry]]
"""Gives the entries of a session after a seq, up to another, as far as its log has them."""

Drafts = Callable[[Sequence[Message]], list[Draft]]
"""Counts what messages cost."""


@dataclass(frozen=True, slots=True)
class LogEdit:
    """What makes a session's log another one.

    Attributes:
        before: The head that it was made for.
        after: The head that goes with the other log; end, total and version as before.
        end: The seq up to which the log stays.
        entries: What follows it.
        taken: What followed it before, where that is not in the log any more.
        since: Blocks forget what derives from entries after this seq: `end`, or a seq before it
            where entries that have expired are not to count any more either.
        anew: Names of the blocks that absorb the session from its beginning.
        redacts: Whether the entries are those that were there, redacted: of what was to stay
            forgotten they say nothing else.
    """

    before: Head
    after: Head
    end: int
    entries: Sequence[Entry]
    taken: Sequence[Entry]
    since: int
    anew: frozenset[str] = frozenset()
    redacts: bool = False

    @property
    def only_adds(self) -> bool:
        """Whether all that is there stays. Nothing is to be forgotten then."""
        return self.end == self.before.end


Plan = Callable[[Head, Log], LogEdit | None]
"""Says what is to become of a session as it is now; None: nothing. What it raises is raised."""


def splice(
    head: Head, end: int, taken: Sequence[Entry], drafts: Sequence[Draft], log: Log
) -> LogEdit:
    """The edit that puts messages in the place of all that follows a seq.

    Args:
        head: The session's.
        end: The seq.
        taken: What follows it now.
        drafts: What is to follow it.
        log: The session's.
    """
    total = head.total - sum(one.counted for one in taken)
    entries = entries_after(head.session_id, end, total, drafts)
    after = head
    if any(draft.message.is_system for draft in drafts):
        after = ruled(head, drafts)
    elif any(one.message.is_system for one in taken):
        after = ruled(head, log(head.expired, end))
    if taken:
        after = window_before(after, end, log)
    return LogEdit(head, after, end, entries, taken, since=end)


def window_before(head: Head, end: int, log: Log) -> Head:
    """The head of a session whose log is cut at a seq: a window that began later begins anew."""
    if head.start < end:
        return head
    first = log(head.expired, head.expired + 1)
    return begun_anew(head, first[0] if first else None)


def popped(count: int) -> Plan:
    """Takes the newest messages away."""

    def plan(head: Head, log: Log) -> LogEdit | None:
        least = head.expired + 1 if head.expired else 0  # or seqs would begin anew
        end = max(least, head.end - count)
        return splice(head, end, log(end, head.end), (), log) if end < head.end else None

    return plan


def answered(part: Span, question: Message, drafts: Sequence[Draft]) -> Plan:
    """Puts another answer right after a question, should that still be the newest.

    System messages that came with the former answer stay, before the new one.

    Args:
        part: From the question to the newest message, when it was asked again.
        question: The question.
        drafts: The answer.
    """

    def plan(head: Head, log: Log) -> LogEdit:
        still = [entry.message for entry in log(part.first - 1, part.first)]
        if head.end != part.last or still != [question]:
            raise InvalidInput(
                f"Session {part.session_id!r} went on while its question was asked again. "
                "Nothing was replaced; call regenerate() anew."
            )
        taken = log(part.first, part.last)
        rules = [one for one in taken if one.message.is_system]
        kept = [Draft(one.message, one.tokens, one.encoding) for one in rules]
        return splice(head, part.first, taken, [*kept, *drafts], log)

    return plan


def listed(messages: Sequence[Message], user_id: str | None, drafted: Drafts) -> Plan:
    """Has a session consist of a list of messages.

    What agrees with the log from its beginning stays as it is there. A block that has absorbed more
    than that begins the session anew: only so does it forget the rest wherever it keeps it.

    Args:
        messages: The list.
        user_id: Whose the session is to be, if it is nobody's.
        drafted: Counts the messages that are new.
    """

    def plan(head: Head, log: Log) -> LogEdit | None:
        _check_list(head, messages)
        had = log(head.expired, head.end)
        same = agreeing(had, messages)
        end = head.expired + same

        def read(after: int, upto: int) -> Sequence[Entry]:
            return had[after - head.expired : upto - head.expired]

        edit = splice(head, end, had[same:], drafted(messages[same:]), read)
        if user_id is not None and head.user_id is None:  # absorbed once more, as the user's
            after = replace(edit.after, user_id=user_id, cursors={})
            return replace(edit, after=after, anew=frozenset(head.cursors))
        if head.version and edit.only_adds and not edit.entries:
            return None
        anew = (name for name, cursor in head.cursors.items() if cursor > end)
        return replace(edit, anew=frozenset(anew))

    return plan


def changed(
    change: Callable[[list[Entry]], Iterable[Any]], user_id: str | None, drafted: Drafts
) -> Plan:
    """Has a session consist of what a function makes of its log; see `listed`.

    Args:
        change: The function.
        user_id: Whose the session is to be, if it is nobody's.
        drafted: Counts the messages that are new.

    Raises:
        InvalidInput: It is no function.
    """
    check_callable("change", change)

    def plan(head: Head, log: Log) -> LogEdit | None:
        given = change([entry_for_caller(entry) for entry in log(head.expired, head.end)])
        messages = [one.message if isinstance(one, Entry) else one for one in given_back(given)]
        return listed(messages, user_id, drafted)(head, log)

    return plan


def given_back(given: object) -> list[Entry | Message]:
    """What a function made of a log, one by one.

    Raises:
        InvalidMessage: It is no list of entries and messages.
    """
    if not isinstance(given, Iterable) or isinstance(given, str | Mapping):
        raise InvalidMessage("Give back a list of entries or messages: all of the log.")
    return [
        each for one in given for each in ([one] if isinstance(one, Entry) else Message.all_of(one))
    ]


def _check_list(head: Head, messages: Sequence[Message]) -> None:
    if head.expired and not messages:
        raise UnsupportedOperation(
            f"Session {head.session_id!r} cannot be made empty: messages of it have expired, and "
            "the numbers of new ones go on from theirs. Clear it."
        )


def agreeing(log: Sequence[Entry], messages: Sequence[Message]) -> int:
    """How many messages a log and a list have in common from their beginning.

    A message that was given without a time of its own agrees with one that was so too, whenever.
    """
    for count, (entry, message) in enumerate(zip(log, messages, strict=False)):
        if entry.message.to_json() != message.to_json():
            return count
    return min(len(log), len(messages))


def redacted(
    head: Head, log: Log, theirs: Callable[[Message | None], bool], noted: int | None
) -> LogEdit | None:
    """The edit that empties somebody's messages, each at its place; None where there are none.

    Args:
        head: The session's.
        log: The session's.
        theirs: Whether a message is to be redacted.
        noted: A seq before which none of theirs was, where that is known: the log may have lost
            messages of theirs by now.
    """
    had = log(head.expired, head.end)
    said = [entry.seq for entry in had if theirs(entry.message)]
    if noted is not None and noted <= head.expired:  # they said what the log has no more, too
        said = [noted, *said]
    if not said and theirs(head.system):  # nobody knows since when
        said = [1]
    if not said:
        return None
    first, after = said[0], head
    end = max(first - 1, head.expired)
    if theirs(head.system):
        after = ruled(after, [entry for entry in had if not theirs(entry.message)])
    if head.summary is not None and head.summary.upto >= first and had:
        after = begun_anew(after, had[0])
    entries = [_emptied(one) if theirs(one.message) else one for one in had if one.seq > end]
    return LogEdit(head, after, end, entries, (), since=first - 1, redacts=True)


def _emptied(entry: Entry) -> Entry:
    """The entry without its words. What it adds to the running total stays, so that no total
    changes; without the name of an encoding, a context counts it anew."""
    return replace(
        entry, message=redacted_message(entry.message), tokens=entry.counted, encoding=""
    )
