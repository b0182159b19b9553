"""Computes the head and the entries after an append, and checks owners and encryption. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from agent_memory.core.formats.registry import ENCRYPTED
from agent_memory.core.messages import Message
from agent_memory.core.records import Draft, Entry, Head
from agent_memory.core.window import system_of
from agent_memory.errors import SessionDeleting, SessionOfAnotherUser, Undecryptable

LOST = "Another worker took over session {!r}. The write of this worker was refused."


def extend(head: Head, drafts: Sequence[Draft], user_id: str | None) -> tuple[Head, list[Entry]]:
    """Return the head after an append, as a copy, and the entries to write.

    A system message that equals the current system message does not change the version. Callers may
    thus send the same message with every update, and concurrent compare-and-swaps still succeed.

    Raises:
        SessionOfAnotherUser: `user_id` is not None, and the session has another user.
        SessionDeleting: A deletion of the session has begun.
    """
    if head.deleting:
        raise SessionDeleting(
            f"Session {head.session_id!r} is being deleted. Delete it again to finish the deletion."
        )
    check_owner(head, user_id)
    entries = entries_after(head.session_id, head.end, head.total, drafts)
    system = system_of(drafts)
    after = with_tail(head, head.end + len(entries), entries[-1].total if entries else head.total)
    claimed = user_id is not None and head.user_id is None
    if claimed:
        after = replace(after, user_id=user_id, cursors={})
    ruled = system is not None and not _stands(head, *system)
    if system is not None and ruled:
        after = replace(after, system=system[0], system_tokens=system[1])
    if claimed or ruled or head.version == 0:
        after = replace(after, version=head.version + 1)
    for place, draft in enumerate(drafts):
        if draft.placed is not None:
            message = draft.placed(entries[place].seq)
            entries[place] = replace(entries[place], message=message, created_at=message.created_at)
    return after, entries


def check_owner(head: Head, user_id: str | None) -> None:
    """Raise `SessionOfAnotherUser` if a session belongs to another user than `user_id`.

    Repeat this check whenever the head is read again. The session may have been deleted, and
    another user may have begun a session with the same id.
    """
    if user_id is not None and head.user_id not in (None, user_id):
        raise SessionOfAnotherUser(
            f"Session {head.session_id!r} belongs to another user. Use that user's id, or start a "
            "session with another id."
        )


def entries_after(session_id: str, end: int, total: int, drafts: Sequence[Draft]) -> list[Entry]:
    """Return the entries of drafts that are appended to a log with this end and total."""
    entries: list[Entry] = []
    for seq, draft in enumerate(drafts, end + 1):
        message, tokens = draft.message, draft.tokens
        total += 0 if message.is_system else tokens
        created_at = message.created_at
        entries.append(Entry(session_id, seq, message, tokens, total, draft.encoding, created_at))
    return entries


def with_tail(head: Head, end: int, total: int) -> Head:
    """Return a copy of a head with another end and total, without metadata and `updated_at`.

    The function is 8 times faster than `dataclasses.replace`.
    """
    after: Head = object.__new__(Head)
    after.__dict__.update(
        head.__dict__,
        end=end,
        total=total,
        system=None if head.system is None else head.system.detached(),
        cursors=dict(head.cursors),
        updated_at=None,
        metadata={},
    )
    return after


def _stands(head: Head, system: Message, tokens: int) -> bool:
    if head.system is None or head.system_tokens != tokens:
        return False
    return head.system.to_json() == system.to_json()


def decrypted(entries: list[Entry]) -> list[Entry]:
    """Return the entries. Raise `Undecryptable` if one is encrypted and the store has no keys."""
    for entry in entries:
        if entry.message.format == ENCRYPTED:
            raise Undecryptable(
                f"The session {entry.session_id!r} is encrypted. Give the memory its keys: "
                "`encryption`."
            )
    return entries


def entry_for_caller(entry: Entry) -> Entry:
    message = entry.message.detached()
    return entry if message is entry.message else replace(entry, message=message)
