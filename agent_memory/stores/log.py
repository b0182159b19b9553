"""What is decided once for every database: what an append does, and whose turn it is. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from agent_memory.errors import SessionDeleting, SessionOfAnotherUser
from agent_memory.records import Draft, Entry, Head, Scope

LOST = "Another worker took session {!r} over. What this one was about to write was refused."


def extend(head: Head, drafts: Sequence[Draft], user_id: str | None) -> tuple[Head, list[Entry]]:
    """The head after an append, and the entries to write.

    Repeating the system message as it stands leaves the version alone, so that a caller who sends
    it with every update makes nobody lose a compare-and-swap.

    Raises:
        SessionOfAnotherUser: The session has another user.
        SessionDeleting: A deletion of the session has begun.
    """
    if head.deleting:
        raise SessionDeleting(
            f"Session {head.session_id!r} is being deleted. Delete it again to finish that."
        )
    if user_id is not None and head.user_id not in (None, user_id):
        raise SessionOfAnotherUser(f"Session {head.session_id!r} belongs to another user.")
    entries: list[Entry] = []
    total, system = head.total, None
    for seq, draft in enumerate(drafts, head.end + 1):
        message = draft.message
        if message.is_system:
            system = draft
        else:
            total += draft.tokens
        if draft.placed is not None:
            message = draft.placed(seq)
        entries.append(
            Entry(
                head.session_id,
                seq,
                message,
                draft.tokens,
                total,
                draft.encoding,
                message.created_at,
            )
        )
    after = grown(head, head.end + len(entries), total)
    claimed = user_id is not None and head.user_id is None
    if claimed:
        after = replace(after, user_id=user_id, cursors={})
    ruled = system is not None and not _stands(head, system)
    if system is not None and ruled:
        after = replace(after, system=system.message, system_tokens=system.tokens)
    if claimed or ruled or head.version == 0:
        after = replace(after, version=head.version + 1)
    return after, entries


def grown(head: Head, end: int, total: int) -> Head:
    """A copy of a head with another end; `replace` takes twice as long, and each append waits."""
    return Head(
        head.session_id,
        head.user_id,
        end,
        total,
        head.start,
        head.start_total,
        head.pinned,
        head.pinned_tokens,
        None if head.system is None else head.system.own(),
        head.system_tokens,
        head.summary,
        dict(head.cursors),
        head.version,
        head.deleting,
        head.created_at,
    )


def lent(head: Head) -> Head:
    """A copy for callers, who may change its dicts and lists."""
    return grown(head, head.end, head.total)


def _stands(head: Head, system: Draft) -> bool:
    if head.system is None or head.system_tokens != system.tokens:
        return False
    return head.system.to_json() == system.message.to_json()


def lent_entry(entry: Entry) -> Entry:
    """An entry for callers, who may change what its message holds."""
    message = entry.message.own()
    return entry if message is entry.message else replace(entry, message=message)


def fairly(waiting: Iterable[tuple[float, Head]]) -> list[Head]:
    """Heads in the order of `SessionStore.due`, from all that are due and since when."""
    turns: Counter[str] = Counter()
    order: list[tuple[int, Head]] = []
    for _, head in sorted(waiting, key=lambda one: one[0]):
        owner = Scope(head.user_id, head.session_id).owner
        order.append((turns[owner], head))
        turns[owner] += 1
    return [head for _, head in sorted(order, key=lambda one: one[0])]  # within a turn, as before
