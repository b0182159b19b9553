"""Idempotent writes of a session store."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from agent_memory.core.idempotency import Appended, KeptKey, Once
from agent_memory.core.records import Draft, Lease


class OnceStore(Protocol):
    """Part of `SessionStore`: appends on terms, and the keys of appends."""

    def append_once(
        self,
        session_id: str,
        drafts: Sequence[Draft],
        once: Once,
        user_id: str | None = None,
        *,
        within: float = 0.0,
    ) -> Appended:
        """Append on terms, as `append`: those of the drafts that no key says were appended before.

        In one transaction with it the keys are looked for, the log's end is compared, and the keys
        of what is appended are kept. If nothing is left to append, nothing changes: no keys are
        stored, and no session begins. Keys from before `once.since` are removed.

        Raises:
            Conflict: A key is known with other content, or the log does not end at
                `once.expected_end`; nothing was stored.
            SessionOfAnotherUser: The session has another user.
            SessionDeleting: A deletion of the session has begun.
        """
        ...

    def keys(self, session_id: str, names: Collection[str] | None = None) -> list[KeptKey]:
        """The keys that are kept of a session, of these names if any are given, in order of their
        seqs."""
        ...

    def put_keys(
        self, session_id: str, keys: Sequence[KeptKey], *, lease: Lease | None = None
    ) -> None:
        """Keep keys of a session as they were kept elsewhere, over those of the same names.

        Nothing is kept where there is no such session.

        Raises:
            LeaseLost: The lease is not held any more; nothing was written.
        """
        ...
