"""Taking out of shared namespaces what an agent wrote there, and leaving what others did."""

from __future__ import annotations

from functools import partial

from agent_memory.core.ids import share_of, shared_user
from agent_memory.core.messages import Message
from agent_memory.core.records import Head
from agent_memory.engine.edit.edit import Editor
from agent_memory.engine.edit.plans import Log, LogEdit, redacted
from agent_memory.engine.paging import all_heads, head_now
from agent_memory.engine.sharing.authorship import Authors, is_by
from agent_memory.engine.sharing.grants import Grants
from agent_memory.stores.base import SessionStore

_BUSY = "The deletion is finished later; call delete_user again."
_PAGE = 500


class Redaction:
    """What the deletion of a user, or of a namespace, takes from shared namespaces.

    Args:
        store: The log.
        editor: Empties messages, and has blocks forget.
        grants: Say where an agent took part.
        authors: Say where in a session it began.
    """

    def __init__(
        self, store: SessionStore, editor: Editor, grants: Grants, authors: Authors
    ) -> None:
        self._store = store
        self._editor = editor
        self._grants = grants
        self._authors = authors

    def close(self, user_id: str) -> None:
        """Shut a user, or all agents of a namespace, out, before anything is erased."""
        share = share_of(user_id)
        if share is None:
            self._grants.close(user_id)
        else:
            self._grants.drop_share(share)

    def erase(self, user_id: str) -> None:
        """Empty what a user wrote as an agent, and forget its grants. Idempotent."""
        if share_of(user_id) is not None:
            return
        for share in self._grants.shares_of(user_id):
            for head in all_heads(self._store, shared_user(share)):
                self._redact(head, user_id)
        self._grants.drop_agent(user_id)

    def late(self, agent: str, session_id: str) -> None:
        """An agent that may be deleted by now has just written to a session."""
        head = self._store.head(session_id)
        if head is not None and share_of(session_id) not in self._grants.shares_of(agent):
            self._redact(head, agent)

    def _redact(self, head: Head, agent: str) -> None:
        if head.deleting or not self._took_part(head, agent):
            return
        self._editor.edit(head.session_id, partial(self._plan, agent), _BUSY)
        left = head_now(self._store, head)
        if left is not None and not left.deleting:
            self._authors.drop(agent, head.session_id)

    def _took_part(self, head: Head, agent: str) -> bool:
        noted = self._authors.first(agent, head.session_id) is not None
        if noted or is_by(head.system, agent):
            return True
        after = head.expired
        while page := self._store.read(head.session_id, after=after, limit=_PAGE):
            if any(is_by(entry.message, agent) for entry in page):
                return True
            after = page[-1].seq
        return False

    def _plan(self, agent: str, head: Head, log: Log) -> LogEdit | None:
        def theirs(message: Message | None) -> bool:
            return is_by(message, agent)

        return redacted(head, log, theirs, self._authors.first(agent, head.session_id))
