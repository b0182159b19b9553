"""Idempotent writes of a session store."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from agent_memory.core.idempotency import Appended, KeptKey, Once
from agent_memory.core.records import Draft, Lease


class OnceStore(Protocol):
    """Part of `SessionStore`: idempotent and conditional appends, and their keys."""

    def append_once(
        self,
        session_id: str,
        drafts: Sequence[Draft],
        once: Once,
        user_id: str | None = None,
        *,
        within: float = 0.0,
    ) -> Appended:
        """Append like `append`, without the drafts whose keys show that they are stored already.

        One transaction looks the keys up, compares the log's end, appends, and stores the new keys.
        If nothing is left to append, nothing changes: no keys are stored, and no session is
        created. An append removes the session's keys from before `once.since`.

        Raises:
            Conflict: A key was used for other content, or the log does not end at
                `once.expected_end`. Nothing was stored.
            SessionOfAnotherUser: The session has another user.
            SessionDeleting: A deletion of the session has begun.
        """
        ...

    def keys(self, session_id: str, names: Collection[str] | None = None) -> list[KeptKey]:
        """Return a session's keys in order of their seqs, all or those with these names."""
        ...

    def put_keys(
        self, session_id: str, keys: Sequence[KeptKey], *, lease: Lease | None = None
    ) -> None:
        """Store keys of a session, as of an import, over those of the same names.

        Nothing is stored if the session does not exist.

        Raises:
            LeaseLost: `lease` was passed and is no longer held; nothing was written.
        """
        ...
