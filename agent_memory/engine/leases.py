"""One worker a session: leases in the store, short so that a dead worker's soon runs out."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic, sleep
from uuid import uuid4

from agent_memory.errors import StoreError
from agent_memory.stores.base import SessionStore

LEASE_SECONDS = 10.0
_BEAT_SECONDS = LEASE_SECONDS / 4
_POLL_SECONDS = 0.02


class Leases:
    """Takes leases for the threads of this process.

    Args:
        store: Where they are kept.
    """

    def __init__(self, store: SessionStore) -> None:
        self._store = store
        self._id = uuid4().hex

    @contextmanager
    def hold(self, session_id: str, wait: float = 0.0) -> Iterator[bool]:
        """Hold a session's lease, however long the work takes; it is renewed meanwhile.

        Args:
            session_id: The session; one that does not exist (any more) has no lease to be had.
            wait: Seconds to wait for another worker to give it back.

        Yields:
            Whether it could be had.
        """
        owner = self._owner()
        deadline = monotonic() + wait
        while not self._store.lease(session_id, owner, LEASE_SECONDS):
            if monotonic() >= deadline or self._store.head(session_id) is None:
                yield False
                return
            sleep(_POLL_SECONDS)
        done = threading.Event()
        beat = threading.Thread(
            target=self._keep, args=(session_id, owner, done), daemon=True, name="lease"
        )
        beat.start()
        try:
            yield True
        finally:
            done.set()
            beat.join()
            self._store.release(session_id, owner)

    def renew(self, session_id: str) -> bool:
        """Whether this thread still holds the session's lease (renewed by asking)."""
        return self._store.lease(session_id, self._owner(), LEASE_SECONDS)

    def _keep(self, session_id: str, owner: str, done: threading.Event) -> None:
        while not done.wait(_BEAT_SECONDS):
            try:
                if not self._store.lease(session_id, owner, LEASE_SECONDS):
                    return
            except StoreError:
                return  # the lease runs out; the worker notices at its next batch

    def _owner(self) -> str:
        return f"{self._id}:{threading.get_ident()}"
