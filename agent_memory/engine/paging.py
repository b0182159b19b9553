"""Walking all sessions, a page at a time."""

from __future__ import annotations

from collections.abc import Iterator

from agent_memory.records import Head
from agent_memory.stores.base import SessionStore

_PAGE = 500


def all_heads(
    store: SessionStore, user_id: str | None = None, after: str | None = None
) -> Iterator[Head]:
    """The heads of all sessions, or of one user's, in order of their ids, those after `after`."""
    while page := store.sessions(user_id=user_id, limit=_PAGE, after=after):
        yield from page
        after = page[-1].session_id
