"""Reads of sessions and their logs, in pages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from agent_memory.core.idempotency import KeptKey
from agent_memory.core.ids import PAST_SHARED, marker, share_of
from agent_memory.core.limits import how_many
from agent_memory.core.records import Entry, Head
from agent_memory.stores.base import SessionStore

HEADS = 500
_PAGE = 200


def all_heads(
    store: SessionStore, user_id: str | None = None, after: str | None = None
) -> Iterator[Head]:
    """Yield the heads of all sessions, or of a user's sessions, by id, beginning after `after`."""
    for page in head_pages(store, user_id, after):
        yield from page


def head_pages(
    store: SessionStore, user_id: str | None = None, after: str | None = None
) -> Iterator[list[Head]]:
    """Yield the heads of `all_heads` in pages of `HEADS`."""
    while page := store.sessions(user_id=user_id, limit=HEADS, after=after):
        yield page
        after = page[-1].session_id


def keys_of(store: SessionStore, head: Head) -> list[KeptKey]:
    """Return the idempotency keys of a session's messages up to the end in its head."""
    return [key for key in store.keys(head.session_id) if key.seq <= head.end]


def read_of(
    store: SessionStore, head: Head, *, after: int = 0, limit: int | None = None
) -> list[Entry]:
    """Return the entries of a log after a seq, in order: an empty list if the session is gone.

    A deleted session's id may soon belong to another user's session. Entries are therefore returned
    only if the session of `head` still exists after the read.
    """
    entries = store.read(head.session_id, after=after, limit=limit)
    return entries if not entries or is_there(store, head) else []


def range_of(store: SessionStore, head: Head, after: int, upto: int) -> list[Entry]:
    """Return the stored entries with a seq above `after` and up to `upto`."""
    return read_of(store, head, after=after, limit=upto - after) if upto > after else []


def entries_of(store: SessionStore, head: Head) -> Iterator[Entry]:
    """Yield the entries of a log, read in pages. Stop early if the session is gone."""
    after = head.expired
    while page := read_of(store, head, after=after, limit=_PAGE):
        yield from page
        after = page[-1].seq


def picked_of(store: SessionStore, head: Head, seqs: Sequence[int]) -> list[Entry]:
    """Return the stored entries with these seqs: an empty list if the session is gone."""
    entries = store.pick(head.session_id, seqs)
    return entries if not entries or is_there(store, head) else []


def head_now(store: SessionStore, head: Head) -> Head | None:
    """Return a session's current head. None if the session is gone, or its id was reused."""
    now = store.head(head.session_id)
    return now if now is not None and now.created_at == head.created_at else None


def is_there(store: SessionStore, head: Head) -> bool:
    """Return whether the session of a head still exists. A newer one with its id does not count."""
    return head_now(store, head) is not None


class LogChanged(Exception):
    """A concurrent change has removed entries that a head still counts. Only used internally."""


def log_pages(store: SessionStore, head: Head, size: int) -> Iterator[list[Entry]]:
    """Yield a session's log in pages of `size` entries. Raise `LogChanged` if entries are gone."""
    at = head.expired
    while at < head.end:
        page = read_of(store, head, after=at, limit=min(size, head.end - at))
        if not page or page[0].seq != at + 1:
            raise LogChanged
        yield page
        at = page[-1].seq


def page_of(
    store: SessionStore,
    user_id: str | None = None,
    *,
    limit: int,
    after: str | None,
    shared: bool = False,
) -> list[Head]:
    """Return a page of sessions, without those that are being deleted.

    With `shared`, return sessions of shared namespaces only. Without it, return other sessions
    only.
    """
    limit, after = how_many("limit", limit), marker(after)
    heads: list[Head] = []
    while len(heads) < limit:
        page = store.sessions(user_id=user_id, limit=limit, after=after)
        heads += [
            head
            for head in page
            if not head.deleting and (share_of(head.session_id) is not None) == shared
        ]
        if len(page) < limit:
            break
        after = page[-1].session_id
        if not shared and share_of(after) is not None:
            after = PAST_SHARED
    return heads[:limit]
