"""Reading sessions and their logs, a page at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from agent_memory.core.ids import PAST_SHARED, marker, share_of
from agent_memory.core.limits import how_many
from agent_memory.core.records import Entry, Head
from agent_memory.stores.base import SessionStore

_PAGE = 500


def all_heads(
    store: SessionStore, user_id: str | None = None, after: str | None = None
) -> Iterator[Head]:
    """The heads of all sessions, or of one user's, in order of their ids, those after `after`."""
    while page := store.sessions(user_id=user_id, limit=_PAGE, after=after):
        yield from page
        after = page[-1].session_id


def read_of(
    store: SessionStore, head: Head, *, after: int = 0, limit: int | None = None
) -> list[Entry]:
    """The entries of a log after a seq, in order; none where the session is gone.

    Stores read logs by the ids of sessions, and an id may be another user's session by then: so
    what was read counts only if the session that was asked for is still there afterwards.
    """
    found = store.read(head.session_id, after=after, limit=limit)
    return found if not found or is_there(store, head) else []


def picked_of(store: SessionStore, head: Head, seqs: Sequence[int]) -> list[Entry]:
    """The entries of a log with these seqs, as far as it has them; none where it is gone."""
    found = store.pick(head.session_id, seqs)
    return found if not found or is_there(store, head) else []


def head_now(store: SessionStore, head: Head) -> Head | None:
    """A session's head as it is now; None where the session is gone: another may have its id."""
    now = store.head(head.session_id)
    return now if now is not None and now.created_at == head.created_at else None


def is_there(store: SessionStore, head: Head) -> bool:
    """Whether there still is a session, rather than none, or another one of its id."""
    return head_now(store, head) is not None


def newest_of(store: SessionStore, head: Head, last: int, after: int = 0) -> list[Entry]:
    """The newest entries of a log, oldest first: so many at most, and only those past `after`."""
    found = read_of(store, head, after=max(after, head.end - last)) if last else []
    return found[-last:]


class LogChanged(Exception):
    """A log is not what its head says: somebody changes it at this moment. Told to no caller."""


def log_pages(store: SessionStore, head: Head, size: int) -> Iterator[list[Entry]]:
    """A session's log, up to where its head says it ends, so many entries at a time.

    Raises:
        LogChanged: There is less.
    """
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
    """A page of sessions whose deletion has not begun: of shared namespaces, or only of others.

    Raises:
        InvalidInput: `limit` is no number, or `after` no id.
    """
    limit, after = how_many("limit", limit), marker(after)
    found: list[Head] = []
    while len(found) < limit:
        page = store.sessions(user_id=user_id, limit=limit, after=after)
        found += [
            head
            for head in page
            if not head.deleting and (share_of(head.session_id) is not None) == shared
        ]
        if len(page) < limit:
            break
        after = page[-1].session_id
        if not shared and share_of(after) is not None:
            after = PAST_SHARED
    return found[:limit]
