"""Plans appends: the head and the entries after an append, and the batch that writes them.

The module also checks owners and encryption. It is pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import NamedTuple

from agent_memory.core.cache import Cache
from agent_memory.core.formats.registry import ENCRYPTED
from agent_memory.core.idempotency import Append as Request
from agent_memory.core.idempotency import Appended
from agent_memory.core.messages import Message
from agent_memory.core.records import Draft, Entry, Head
from agent_memory.core.window import system_of
from agent_memory.errors import (
    Conflict,
    InvalidInput,
    SessionDeleting,
    SessionOfAnotherUser,
    Undecryptable,
)
from agent_memory.stores.kernel import coding
from agent_memory.stores.kernel import contract as k

LOST = "Another worker took over session {!r}. The write of this worker was refused."

_MOST_CACHED = 16_384
_TEXT = 2_000
"""For the size limit of the cache, this many characters in a head count as one more head."""


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


class CachedSession(NamedTuple):
    """The cached state of a session."""

    head: Head  # the head; its `end` and `total` may be outdated: pass `current()` to callers
    version: int  # the version of the head's document; 0 for a session that is not stored
    tail: tuple[int, int]  # the log's current end and total

    @classmethod
    def of(cls, head: Head) -> CachedSession:
        return cls(head, coding.stamp_of(head) if head.version else 0, (head.end, head.total))

    def current(self) -> Head:
        return with_tail(self.head, *self.tail)


class Plan(NamedTuple):
    """The batch of an append, the session after the append, and the indexes of drafts to store."""

    batch: k.Batch
    after: CachedSession
    places: tuple[int, ...]


def session_cache() -> Cache[str, CachedSession]:
    """Return a cache of sessions. It may be outdated, because other processes also write."""

    def weight(session: CachedSession) -> int:
        head = session.head
        system = 0 if head.system is None else len(head.system.text())
        summary = 0 if head.summary is None else len(head.summary.text)
        return 1 + (system + summary) // _TEXT

    return Cache(_MOST_CACHED, weight)


def cached_session(session_id: str, document: k.Document | None, tail: k.Tail) -> CachedSession:
    if document is None:
        return CachedSession.of(Head(session_id, None, created_at=datetime.now(UTC)))
    return CachedSession.of(coding.head_of(document, tail))


def one_line(session: CachedSession, request: Request) -> tuple[k.Line, CachedSession] | None:
    """Return the line of an append of one message, and the session after the append.

    The function is faster than `planned`, with the same result. Return None if the append creates
    or changes the head, has idempotency keys, or may be refused.
    """
    head, version, (end, total) = session
    if len(request.drafts) != 1 or request.idempotency is not None or head.deleting or not version:
        return None
    if request.user_id not in (None, head.user_id):
        return None
    (draft,) = request.drafts
    if draft.message.is_system:
        return None
    end, total = end + 1, total + draft.tokens
    line = coding.line_of(
        request.session_id, end, draft.message, draft.tokens, total, draft.encoding
    )
    return line, CachedSession(head, version, (end, total))


def planned(
    session: CachedSession, request: Request, stored: Mapping[k.DocId, k.Document | None]
) -> Plan | Appended:
    """Return the plan of an append, or its result if its idempotency keys are stored already.

    `stored` has the stored documents of the keys. Raises the errors of
    `SessionStore.append_idempotent`.
    """
    before, idempotency, drafts = session.current(), request.idempotency, request.drafts
    places = tuple(range(len(drafts)))
    if request.own and session.version and before.user_id is None:
        raise SessionOfAnotherUser(f"Session {request.session_id!r} was created without a user.")
    keys: dict[str, k.Document] = {}
    if idempotency is not None:
        extend(before, (), request.user_id)  # a refused caller must not learn whether keys exist
        ids = {name: coding.key_id(request.session_id, name) for name in idempotency.names}
        keys = {name: doc for name, at in ids.items() if (doc := stored.get(at)) is not None}
        decoded = {name: coding.key_of(doc) for name, doc in keys.items()}
        chosen = idempotency.chosen(len(drafts), before.end, decoded)
        if not chosen.places:
            return Appended(before, (), chosen.before)
        places, drafts = chosen.places, [drafts[place] for place in chosen.places]
    head, entries = extend(before, drafts, request.user_id)
    at = k.head_id(request.session_id)
    conditions: list[k.Condition] = [
        k.VersionIs(at, session.version) if session.version else k.Missing(at),
        k.LogEndsAt(request.session_id, before.end),
    ]
    writes: list[k.Write] = []
    if head.version != before.version:
        writes.append(k.Put(coding.head_document(head)))
    if entries:
        writes.append(k.Append([coding.line_of_entry(entry) for entry in entries]))
    writes.append(k.Wake([at], coding.micros_of(request.within)))
    if idempotency is not None:
        for name in idempotency.names:
            key, doc = coding.key_id(request.session_id, name), keys.get(name)
            conditions.append(k.Missing(key) if doc is None else k.VersionIs(key, doc.version))
        if idempotency.since is not None:
            since = coding.to_micros(idempotency.since)
            old = k.Scan(k.KEY, session=request.session_id, first_below=since)
            writes.append(k.DeleteWhere(old))
        fresh = idempotency.records(places, entries, head)
        writes += [k.Put(coding.key_document(request.session_id, key)) for key in fresh]
    return Plan(k.Batch(conditions, writes), CachedSession.of(head), places)


def planned_blindly(session: CachedSession, request: Request) -> Plan | None:
    """Return the plan for a cached session; None if the session must be read first."""
    try:
        plan = planned(session, request, {})
    except (Conflict, InvalidInput, SessionDeleting, SessionOfAnotherUser):
        return None
    return None if isinstance(plan, Appended) else plan
